// The driver API: initialization, devices, contexts.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/driver_call.h"
#include "tests/pretend_gpu/peer_access.h"
#include "tests/pretend_gpu/settings.h"
#include "tests/pretend_gpu/sticky_error.h"

// So that the tables' destructors never run before the streams' threads end, all state is made once and kept.
using pretend_gpu::Contexts;
using pretend_gpu::ContextStack;
using pretend_gpu::CurrentContext;
using pretend_gpu::CurrentHandle;
using pretend_gpu::End;
using pretend_gpu::IsDevice;

namespace {

constexpr int kDriverVersion = 12050;
std::atomic<bool> initialized{false};

std::mutex retained_mu;
std::map<CUdevice, int>& Retained() {  // how often each primary context is; guarded by retained_mu
  static auto* retained = new std::map<CUdevice, int>;
  return *retained;
}

}  // namespace

bool pretend_gpu::Initialized() { return initialized; }

CUresult cuInit(unsigned flags) {
  const pretend_gpu::Call call(__func__);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (pretend_gpu::GetSettings().devices == 0) return CUDA_ERROR_NO_DEVICE;
  pretend_gpu::ForbidForks();
  initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  PRETEND_GPU_ENTER;
  *count = pretend_gpu::GetSettings().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, bytes, "%s", pretend_gpu::NameOf(device).c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  pretend_gpu::WriteUuid(device, uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(id, bytes, "%s", pretend_gpu::PciBusIdOf(device).c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = pretend_gpu::GetSettings().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = pretend_gpu::AttributeOf(attribute, device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *major = pretend_gpu::AttributeOf(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  *minor = pretend_gpu::AttributeOf(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device) || !IsDevice(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice device, CUdevice peer) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device) || !IsDevice(peer)) return CUDA_ERROR_INVALID_DEVICE;
  constexpr int kAccessSupported = 2;
  *value = attribute == kAccessSupported ? device != peer : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> lock(retained_mu);
  Retained()[device]++;
  *context = static_cast<CUcontext>(pretend_gpu::PrimaryContext(device));
  return CUDA_SUCCESS;
}

// A primary context that nobody retains keeps its streams and memory here; a real one loses them.
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> lock(retained_mu);
  if (Retained()[device] == 0) {
    End("the primary context of device %d is released more often than it was retained; release it once for "
        "each",
        device);
  }
  Retained()[device]--;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned) {
  PRETEND_GPU_ENTER;
  return IsDevice(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> lock(retained_mu);
  *flags = 0;
  *active = Retained()[device] > 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  void* handle = Contexts().Add(std::make_shared<pretend_gpu::Context>(device, false));
  ContextStack().push_back(handle);
  *context = static_cast<CUcontext>(handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  PRETEND_GPU_ENTER;
  const auto found = Contexts().Get(context);
  if (found->primary())
    End("%s is not destroyed but released, by cuDevicePrimaryCtxRelease", found->Describe().c_str());
  found->Synchronize();
  Contexts().Remove(context);
  if (CurrentHandle() == context) ContextStack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  PRETEND_GPU_ENTER;
  *context = static_cast<CUcontext>(CurrentHandle());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  PRETEND_GPU_ENTER;
  if (context != nullptr) Contexts().Get(context);
  if (!ContextStack().empty()) ContextStack().pop_back();
  if (context != nullptr) ContextStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  PRETEND_GPU_ENTER;
  Contexts().Get(context);
  ContextStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  PRETEND_GPU_ENTER;
  if (CurrentHandle() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = static_cast<CUcontext>(CurrentHandle());
  ContextStack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  PRETEND_GPU_ENTER;
  if (CurrentHandle() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;  // programs ask whether there is one
  *device = CurrentContext()->device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  PRETEND_GPU_ENTER;
  Contexts().Get(context);
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto context = CurrentContext();
  context->Synchronize();
  pretend_gpu::HeapOf(context->device()).CheckGuards();
  return pretend_gpu::StickyError();
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  PRETEND_GPU_ENTER;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(int) { return CUDA_SUCCESS; }

CUresult cuCtxGetSharedMemConfig(int* config) {
  *config = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(int) { return CUDA_SUCCESS; }

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  PRETEND_GPU_ENTER;
  const int device = CurrentContext()->device();
  const int other = Contexts().Get(peer)->device();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device == other) return CUDA_ERROR_INVALID_DEVICE;
  return pretend_gpu::SetAccess(device, other, true) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  PRETEND_GPU_ENTER;
  const int device = CurrentContext()->device();
  const int other = Contexts().Get(peer)->device();
  return pretend_gpu::SetAccess(device, other, false) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
