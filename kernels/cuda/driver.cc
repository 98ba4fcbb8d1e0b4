#include "kernels/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

namespace tf_smddp::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

struct Loaded {
  Driver driver;
  Status status;
};

Loaded Load() {
  Loaded loaded;
  // It stays open for as long as the process runs: the driver has threads of its own.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.status = Internal(std::string("the CUDA driver cannot be opened: ") + ::dlerror());
    return loaded;
  }
  const auto find = [&](const char* symbol, auto* field) {
    *field = reinterpret_cast<std::remove_pointer_t<decltype(field)>>(::dlsym(library, symbol));
    if (*field == nullptr && loaded.status.ok()) {
      loaded.status = Internal(std::string(kLibrary) + " has no function " + symbol +
                               "; install a driver for CUDA 11.4 or later");
    }
  };
  Driver& driver = loaded.driver;
  find("cuGetErrorName", &driver.GetErrorName);
  find("cuGetErrorString", &driver.GetErrorString);
  find("cuCtxPushCurrent_v2", &driver.CtxPushCurrent);
  find("cuCtxPopCurrent_v2", &driver.CtxPopCurrent);
  find("cuCtxGetDevice", &driver.CtxGetDevice);
  find("cuDeviceGetUuid_v2", &driver.DeviceGetUuid);
  find("cuDeviceGetPCIBusId", &driver.DeviceGetPCIBusId);
  find("cuStreamGetCtx", &driver.StreamGetCtx);
  find("cuCtxGetStreamPriorityRange", &driver.CtxGetStreamPriorityRange);
  find("cuStreamCreateWithPriority", &driver.StreamCreateWithPriority);
  find("cuStreamDestroy_v2", &driver.StreamDestroy);
  find("cuStreamWaitEvent", &driver.StreamWaitEvent);
  find("cuEventCreate", &driver.EventCreate);
  find("cuEventRecord", &driver.EventRecord);
  find("cuEventSynchronize", &driver.EventSynchronize);
  find("cuMemcpyDtoHAsync_v2", &driver.MemcpyDtoHAsync);
  find("cuMemcpyHtoDAsync_v2", &driver.MemcpyHtoDAsync);
  find("cuMemcpyDtoDAsync_v2", &driver.MemcpyDtoDAsync);
  find("cuMemAlloc_v2", &driver.MemAlloc);
  find("cuMemFree_v2", &driver.MemFree);
  find("cuModuleLoadData", &driver.ModuleLoadData);
  find("cuModuleUnload", &driver.ModuleUnload);
  find("cuModuleGetFunction", &driver.ModuleGetFunction);
  find("cuLaunchKernel", &driver.LaunchKernel);
  find("cuMemHostRegister_v2", &driver.MemHostRegister);
  find("cuMemHostUnregister", &driver.MemHostUnregister);
  return loaded;
}

// The results after which no call succeeds any more. The driver's documentation has the process end then,
// since its context is of no more use: a kernel or a copy before the call has failed. It says nothing like
// that of 46 and 999, but a GPU that has fallen off the bus (Xid 79) gives these. 802 and 803 stay, too, but
// come from cuInit, which a rank with a tensor on a GPU is past.
bool IsSticky(Result result) {
  constexpr Result kSticky[] = {
      46,   // DEVICE_UNAVAILABLE
      214,  // ECC_UNCORRECTABLE
      220,  // NVLINK_UNCORRECTABLE
      226,  // CONTAINED
      700,  // ILLEGAL_ADDRESS
      702,  // LAUNCH_TIMEOUT
      709,  // CONTEXT_IS_DESTROYED
      710,  // ASSERT
      714,  // HARDWARE_STACK_ERROR
      715,  // ILLEGAL_INSTRUCTION
      716,  // MISALIGNED_ADDRESS
      717,  // INVALID_ADDRESS_SPACE
      718,  // INVALID_PC
      719,  // LAUNCH_FAILED
      721,  // TENSOR_MEMORY_LEAK
      810,  // MPS_CLIENT_TERMINATED
      999,  // UNKNOWN
  };
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

}  // namespace

const Driver* Driver::Get(Status* status) {
  static const Loaded* const loaded = new Loaded(Load());
  *status = loaded->status;
  return loaded->status.ok() ? &loaded->driver : nullptr;
}

Status Driver::Check(const char* call, Result result) const {
  if (result == kSuccess) return {};
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(result, &name) != kSuccess || name == nullptr) name = "an unknown error";
  if (GetErrorString(result, &text) != kSuccess || text == nullptr) text = "the driver has no text for it";
  std::string message = std::string(call) + " failed: " + name + " (" + std::to_string(result) + "): " + text;
  if (!IsSticky(result)) return Internal(std::move(message));
  message +=
      "; work that this process put on the GPU before has failed, or the GPU itself (dmesg has an Xid then), "
      "and nothing can run there any more. CUDA_LAUNCH_BLOCKING=1 shows which op it was, with -np 1, or with "
      "SMDDP_NCCL=0";
  return {StatusCode::kDeviceLost, std::move(message)};
}

}  // namespace tf_smddp::cuda
