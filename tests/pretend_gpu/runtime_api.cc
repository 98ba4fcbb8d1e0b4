// The runtime API but for kernels  and streams (runtime_stream_api.cc): mostly the driver's functions under
// other names.
#include <cstdio>
#include <cstring>

#include "tests/pretend_gpu/copy.h"
#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/driver_call.h"
#include "tests/pretend_gpu/memory.h"
#include "tests/pretend_gpu/runtime_call.h"

using pretend_gpu::AttributeOf;
using pretend_gpu::Keep;
using pretend_gpu::Pointer;
using pretend_gpu::Side;

#define ENTER PRETEND_GPU_RUNTIME_ENTER

namespace {

thread_local cudaError_t last_error = cudaSuccess;

CUcontext PrimaryContextOf(int device) { return static_cast<CUcontext>(pretend_gpu::PrimaryContext(device)); }

void CopyByKind(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                bool wait) {
  Side to_side = Side::kAny;
  Side from_side = Side::kAny;
  if (kind != cudaMemcpyDefault) {
    to_side =
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ? Side::kDevice : Side::kHost;
    from_side =
        kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ? Side::kDevice : Side::kHost;
  }
  pretend_gpu::Copy(to, to_side, from, from_side, bytes, pretend_gpu::StreamOf(stream), wait);
}

}  // namespace

cudaError_t pretend_gpu::Keep(cudaError_t error) {
  // Not ready is no failure.
  if (error != cudaSuccess && error != CUDA_ERROR_NOT_READY) last_error = error;
  return error;
}

cudaError_t pretend_gpu::EnsureContext() {
  if (const CUresult error = cuInit(0)) return error;
  if (CurrentHandle() == nullptr) ContextStack().push_back(PrimaryContext(0));
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  cuGetErrorName(error, &name);
  return name == nullptr ? "unrecognized error code" : name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  cuGetErrorString(error, &text);
  return text == nullptr ? "unrecognized error code" : text;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cuDriverGetVersion(version); }

cudaError_t cudaDriverGetVersion(int* version) { return cuDriverGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  const pretend_gpu::Call call(__func__);
  if (const CUresult error = cuInit(0)) return Keep(error);
  return Keep(cuDeviceGetCount(count));
}

cudaError_t cudaGetDevice(int* device) {
  ENTER;
  return Keep(cuCtxGetDevice(device));
}

cudaError_t cudaSetDevice(int device) {
  ENTER;
  if (!pretend_gpu::IsDevice(device)) return Keep(CUDA_ERROR_INVALID_DEVICE);
  return Keep(cuCtxSetCurrent(PrimaryContextOf(device)));
}

cudaError_t cudaDeviceSynchronize(void) {
  ENTER;
  return Keep(cuCtxSynchronize());
}

cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER;
  return Keep(cuDeviceGetAttribute(value, attribute, device));
}

cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device) {
  ENTER;
  if (!pretend_gpu::IsDevice(device)) return Keep(CUDA_ERROR_INVALID_DEVICE);
  const auto is = [device](int attribute) { return AttributeOf(attribute, device); };
  cudaDeviceProp p = {};
  std::snprintf(p.name, sizeof(p.name), "%s", pretend_gpu::NameOf(device).c_str());
  pretend_gpu::WriteUuid(device, p.uuid);
  p.totalGlobalMem = pretend_gpu::HeapOf(device).space().bytes();
  p.sharedMemPerBlock = is(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  p.regsPerBlock = is(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  p.warpSize = is(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p.memPitch = is(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  p.maxThreadsPerBlock = is(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  p.maxThreadsDim[0] = is(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  p.maxThreadsDim[1] = is(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  p.maxThreadsDim[2] = is(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  p.maxGridSize[0] = is(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  p.maxGridSize[1] = is(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  p.maxGridSize[2] = is(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  p.clockRate = is(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  p.totalConstMem = is(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  p.major = is(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  p.minor = is(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  p.textureAlignment = is(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  p.multiProcessorCount = is(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p.canMapHostMemory = is(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  p.concurrentKernels = is(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  p.pciBusID = is(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  p.asyncEngineCount = is(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  p.unifiedAddressing = is(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  p.memoryClockRate = is(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  p.memoryBusWidth = is(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  p.l2CacheSize = is(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  p.maxThreadsPerMultiProcessor = is(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  p.streamPrioritiesSupported = is(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  p.sharedMemPerMultiprocessor = is(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  p.regsPerMultiprocessor = is(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  p.sharedMemPerBlockOptin = is(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  p.maxBlocksPerMultiProcessor = is(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  p.reservedSharedMemPerBlock = is(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  ENTER;
  return Keep(cuDeviceGetPCIBusId(id, bytes, device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  ENTER;
  return Keep(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  ENTER;
  return Keep(cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  ENTER;
  if (!pretend_gpu::IsDevice(peer)) return Keep(CUDA_ERROR_INVALID_DEVICE);
  return Keep(cuCtxEnablePeerAccess(PrimaryContextOf(peer), flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  ENTER;
  if (!pretend_gpu::IsDevice(peer)) return Keep(CUDA_ERROR_INVALID_DEVICE);
  return Keep(cuCtxDisablePeerAccess(PrimaryContextOf(peer)));
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  ENTER;
  return Keep(cuMemGetInfo_v2(free_bytes, total_bytes));
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  ENTER;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return Keep(cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(address), bytes));
}

cudaError_t cudaFree(void* address) {
  ENTER;
  return Keep(cuMemFree_v2(Pointer(address)));
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  ENTER;
  return Keep(cuMemHostAlloc(address, bytes, 0));
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  ENTER;
  return Keep(cuMemHostAlloc(address, bytes, flags));
}

cudaError_t cudaFreeHost(void* address) {
  ENTER;
  if (address == nullptr) return cudaSuccess;
  return Keep(cuMemFreeHost(address));
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned flags) {
  ENTER;
  return Keep(cuMemHostRegister_v2(address, bytes, flags));
}

cudaError_t cudaHostUnregister(void* address) {
  ENTER;
  return Keep(cuMemHostUnregister(address));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  ENTER;
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, nullptr};
  unsigned type = 0;
  void* const at = const_cast<void*>(address);
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Pointer(address))) return cudaSuccess;
  cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, Pointer(address));
  attributes->type = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->devicePointer = at;
  attributes->hostPointer = type == CU_MEMORYTYPE_HOST ? at : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  ENTER;
  const bool on_device = pretend_gpu::SpaceOf(to) != nullptr && pretend_gpu::SpaceOf(from) != nullptr;
  CopyByKind(to, from, bytes, kind, nullptr, !on_device);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTER;
  CopyByKind(to, from, bytes, kind, stream, false);
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
  ENTER;
  if (!pretend_gpu::IsDevice(to_device) || !pretend_gpu::IsDevice(from_device)) {
    return Keep(CUDA_ERROR_INVALID_DEVICE);
  }
  return Keep(cuMemcpyPeerAsync(Pointer(to), PrimaryContextOf(to_device), Pointer(from),
                                PrimaryContextOf(from_device), bytes, stream));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  ENTER;
  return Keep(cuMemsetD8_v2(Pointer(to), static_cast<unsigned char>(value), bytes));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  ENTER;
  return Keep(cuMemsetD8Async(Pointer(to), static_cast<unsigned char>(value), bytes, stream));
}
