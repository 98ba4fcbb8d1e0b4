// Driver: the functions of the CUDA driver that we call, found at run time.
//
// Place in the stack: the bottom of cuda/. Nothing links CUDA, and no header of CUDA is needed to build: the
// declarations below follow the driver's documentation, whose binary interface does not change. So one
// library runs with and without a GPU.
#ifndef TF_SMDDP_KERNELS_CUDA_DRIVER_H_
#define TF_SMDDP_KERNELS_CUDA_DRIVER_H_

#include <cstddef>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp::cuda {

using Result = int;  // CUresult
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using EventHandle = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using DeviceAddress = unsigned long long;

struct Uuid {  // CUuuid
  char bytes[16];
};

enum : Result { kSuccess = 0 };

enum : unsigned {
  kStreamNonBlocking = 1,  // the stream does not wait for the legacy default stream
  kEventBlockingSync = 1,  // cuEventSynchronize sleeps
  kEventDisableTiming = 2,
  kHostRegisterPortable = 1,  // pinned for all contexts
};

// The fields are called as the driver's functions, without "cu" and the version.
struct Driver {
  Result (*GetErrorName)(Result, const char** name) = nullptr;
  Result (*GetErrorString)(Result, const char** text) = nullptr;
  Result (*CtxPushCurrent)(Context) = nullptr;
  Result (*CtxPopCurrent)(Context*) = nullptr;
  Result (*CtxGetDevice)(int* device) = nullptr;
  Result (*DeviceGetUuid)(Uuid*, int device) = nullptr;
  Result (*DeviceGetPCIBusId)(char* text, int bytes, int device) = nullptr;
  Result (*StreamGetCtx)(Stream, Context*) = nullptr;
  Result (*CtxGetStreamPriorityRange)(int* least, int* greatest) = nullptr;
  Result (*StreamCreateWithPriority)(Stream*, unsigned flags, int priority) = nullptr;
  Result (*StreamDestroy)(Stream) = nullptr;
  Result (*StreamWaitEvent)(Stream, EventHandle, unsigned flags) = nullptr;
  Result (*EventCreate)(EventHandle*, unsigned flags) = nullptr;
  Result (*EventRecord)(EventHandle, Stream) = nullptr;
  Result (*EventSynchronize)(EventHandle) = nullptr;
  Result (*MemcpyDtoHAsync)(void* to, DeviceAddress from, std::size_t bytes, Stream) = nullptr;
  Result (*MemcpyHtoDAsync)(DeviceAddress to, const void* from, std::size_t bytes, Stream) = nullptr;
  Result (*MemcpyDtoDAsync)(DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream) = nullptr;
  Result (*MemAlloc)(DeviceAddress*, std::size_t bytes) = nullptr;
  Result (*MemFree)(DeviceAddress) = nullptr;
  Result (*ModuleLoadData)(Module*, const void* image) = nullptr;
  Result (*ModuleUnload)(Module) = nullptr;
  Result (*ModuleGetFunction)(Function*, Module, const char* name) = nullptr;
  Result (*LaunchKernel)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** arguments,
                         void** extra) = nullptr;
  Result (*MemHostRegister)(void* data, std::size_t bytes, unsigned flags) = nullptr;
  Result (*MemHostUnregister)(void* data) = nullptr;

  // Returns the driver of this process; nullptr without one, and then *status says why. Any thread.
  static const Driver* Get(Status* status);

  // Returns OK for kSuccess; else "cuEventRecord failed: CUDA_ERROR_…: …", which is DeviceLost if all later
  // calls fail alike, or Internal.
  Status Check(const char* call, Result result) const;
};

// Makes a context current in this thread for as long as it lives.
class CurrentContext {
 public:
  CurrentContext(const Driver* driver, Context context) : driver_(driver) {
    driver_->CtxPushCurrent(context);
  }
  ~CurrentContext() {
    Context popped = nullptr;
    driver_->CtxPopCurrent(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver* const driver_;
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_DRIVER_H_
