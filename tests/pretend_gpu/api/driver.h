// The part of the CUDA driver API that the stand-in has, declared from its documentation, so that neither the
// stand-in nor its tests need a CUDA package. The names are those of the symbols, such as cuMemAlloc_v2.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_API_DRIVER_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_API_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "tests/pretend_gpu/pretend_gpu.h"

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUevent = struct CUevent_st*;
using CUstreamCallback = void (*)(CUstream stream, CUresult status, void* data);
using CUhostFn = void (*)(void* data);
struct CUuuid {
  char bytes[16];
};

enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum : unsigned {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
};

enum : int {
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
  CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
};

enum : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
  CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
  CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
  CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
};

#define PRETEND_GPU_DRIVER PRETEND_GPU_API CUresult

// Errors, version, other functions.
PRETEND_GPU_DRIVER cuInit(unsigned flags);
PRETEND_GPU_DRIVER cuDriverGetVersion(int* version);
PRETEND_GPU_DRIVER cuGetErrorName(CUresult error, const char** name);
PRETEND_GPU_DRIVER cuGetErrorString(CUresult error, const char** text);
PRETEND_GPU_DRIVER cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags);
PRETEND_GPU_DRIVER cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                       int* status);
PRETEND_GPU_DRIVER cuGetExportTable(const void** table, const CUuuid* id);

// Devices.
PRETEND_GPU_DRIVER cuDeviceGetCount(int* count);
PRETEND_GPU_DRIVER cuDeviceGet(CUdevice* device, int ordinal);
PRETEND_GPU_DRIVER cuDeviceGetName(char* name, int bytes, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceGetUuid(CUuuid* uuid, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceGetAttribute(int* value, int attribute, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceComputeCapability(int* major, int* minor, CUdevice device);
PRETEND_GPU_DRIVER cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer);
PRETEND_GPU_DRIVER cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice device, CUdevice peer);

// Contexts.
PRETEND_GPU_DRIVER cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
PRETEND_GPU_DRIVER cuDevicePrimaryCtxRelease_v2(CUdevice device);
PRETEND_GPU_DRIVER cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
PRETEND_GPU_DRIVER cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active);
PRETEND_GPU_DRIVER cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
PRETEND_GPU_DRIVER cuCtxDestroy_v2(CUcontext context);
PRETEND_GPU_DRIVER cuCtxGetCurrent(CUcontext* context);
PRETEND_GPU_DRIVER cuCtxSetCurrent(CUcontext context);
PRETEND_GPU_DRIVER cuCtxPushCurrent_v2(CUcontext context);
PRETEND_GPU_DRIVER cuCtxPopCurrent_v2(CUcontext* context);
PRETEND_GPU_DRIVER cuCtxGetDevice(CUdevice* device);
PRETEND_GPU_DRIVER cuCtxGetApiVersion(CUcontext context, unsigned* version);
PRETEND_GPU_DRIVER cuCtxSynchronize(void);
PRETEND_GPU_DRIVER cuCtxGetStreamPriorityRange(int* least, int* greatest);
PRETEND_GPU_DRIVER cuCtxSetSharedMemConfig(int config);
PRETEND_GPU_DRIVER cuCtxGetSharedMemConfig(int* config);
PRETEND_GPU_DRIVER cuCtxSetCacheConfig(int config);
PRETEND_GPU_DRIVER cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
PRETEND_GPU_DRIVER cuCtxDisablePeerAccess(CUcontext peer);

// Memory.
PRETEND_GPU_DRIVER cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes);
PRETEND_GPU_DRIVER cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemFree_v2(CUdeviceptr address);
PRETEND_GPU_DRIVER cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address);
PRETEND_GPU_DRIVER cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address);
PRETEND_GPU_DRIVER cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                          CUdeviceptr address);
PRETEND_GPU_DRIVER cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device);
PRETEND_GPU_DRIVER cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value);
PRETEND_GPU_DRIVER cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value);
PRETEND_GPU_DRIVER cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                                           CUstream stream);
PRETEND_GPU_DRIVER cuMemFreeAsync(CUdeviceptr address, CUstream stream);
PRETEND_GPU_DRIVER cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags);
PRETEND_GPU_DRIVER cuMemAllocHost_v2(void** address, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemFreeHost(void* address);
PRETEND_GPU_DRIVER cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags);
PRETEND_GPU_DRIVER cuMemHostUnregister(void* address);
PRETEND_GPU_DRIVER cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned flags);

// Copies and fills.
PRETEND_GPU_DRIVER cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
PRETEND_GPU_DRIVER cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream);
PRETEND_GPU_DRIVER cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream);
PRETEND_GPU_DRIVER cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
PRETEND_GPU_DRIVER cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, std::size_t bytes);
PRETEND_GPU_DRIVER cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                     CUcontext from_context, std::size_t bytes, CUstream stream);
PRETEND_GPU_DRIVER cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count);
PRETEND_GPU_DRIVER cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count);
PRETEND_GPU_DRIVER cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count);
PRETEND_GPU_DRIVER cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream);
PRETEND_GPU_DRIVER cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream);
PRETEND_GPU_DRIVER cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream);

// Streams.
PRETEND_GPU_DRIVER cuStreamCreate(CUstream* stream, unsigned flags);
PRETEND_GPU_DRIVER cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority);
PRETEND_GPU_DRIVER cuStreamDestroy_v2(CUstream stream);
PRETEND_GPU_DRIVER cuStreamSynchronize(CUstream stream);
PRETEND_GPU_DRIVER cuStreamQuery(CUstream stream);
PRETEND_GPU_DRIVER cuStreamGetPriority(CUstream stream, int* priority);
PRETEND_GPU_DRIVER cuStreamGetFlags(CUstream stream, unsigned* flags);
PRETEND_GPU_DRIVER cuStreamGetCtx(CUstream stream, CUcontext* context);
PRETEND_GPU_DRIVER cuStreamGetId(CUstream stream, unsigned long long* id);
PRETEND_GPU_DRIVER cuStreamIsCapturing(CUstream stream, int* status);
PRETEND_GPU_DRIVER cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
PRETEND_GPU_DRIVER cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                                       unsigned flags);
PRETEND_GPU_DRIVER cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data);

// Events.
PRETEND_GPU_DRIVER cuEventCreate(CUevent* event, unsigned flags);
PRETEND_GPU_DRIVER cuEventDestroy_v2(CUevent event);
PRETEND_GPU_DRIVER cuEventRecord(CUevent event, CUstream stream);
PRETEND_GPU_DRIVER cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
PRETEND_GPU_DRIVER cuEventQuery(CUevent event);
PRETEND_GPU_DRIVER cuEventSynchronize(CUevent event);
PRETEND_GPU_DRIVER cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end);

// Modules and kernels.
PRETEND_GPU_DRIVER cuModuleLoadData(CUmodule* module, const void* image);
PRETEND_GPU_DRIVER cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int* options,
                                      void** values);
PRETEND_GPU_DRIVER cuModuleLoadFatBinary(CUmodule* module, const void* image);
PRETEND_GPU_DRIVER cuModuleUnload(CUmodule module);
PRETEND_GPU_DRIVER cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
PRETEND_GPU_DRIVER cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                                        const char* name);
PRETEND_GPU_DRIVER cuFuncSetCacheConfig(CUfunction function, int config);
PRETEND_GPU_DRIVER cuFuncSetAttribute(CUfunction function, int attribute, int value);
PRETEND_GPU_DRIVER cuFuncGetAttribute(int* value, int attribute, CUfunction function);
PRETEND_GPU_DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                               std::size_t shared_bytes);
PRETEND_GPU_DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                        int threads, std::size_t shared_bytes,
                                                                        unsigned flags);
PRETEND_GPU_DRIVER cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                  CUstream stream, void** arguments, void** extra);

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_API_DRIVER_H_
