// The part of the CUDA runtime API that the stand-in has; see driver.h. Its errors, streams and events are
// the driver's.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_API_RUNTIME_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_API_RUNTIME_H_

#include <cstddef>

#include "tests/pretend_gpu/api/driver.h"

using cudaError_t = int;
using cudaStream_t = CUstream;
using cudaEvent_t = CUevent;
using cudaHostFn_t = CUhostFn;
using cudaStreamCallback_t = CUstreamCallback;
struct dim3 {
  unsigned x, y, z;
};

enum : int { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidDeviceFunction = 98 };

enum cudaMemcpyKind : int {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

enum : int { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };

struct cudaPointerAttributes {
  int type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

struct cudaFuncAttributes {
  std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
  // The rest stays as it is.
};

// As CUDA 12 lays it out: what a program may look at has a name.
struct cudaDeviceProp {
  char name[256];
  char uuid[16];
  char luid[12];
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  std::size_t totalConstMem;
  int major;
  int minor;
  std::size_t textureAlignment;
  std::size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
  int kernelExecTimeoutEnabled;
  int integrated;
  int canMapHostMemory;
  int computeMode;
  int textures[40];
  std::size_t surfaceAlignment;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryClockRate;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int others[11];
  std::size_t sharedMemPerBlockOptin;
  int more[2];
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int rest[76];
};

#define PRETEND_GPU_RUNTIME PRETEND_GPU_API cudaError_t

// Errors, versions.
PRETEND_GPU_RUNTIME cudaGetLastError(void);
PRETEND_GPU_RUNTIME cudaPeekAtLastError(void);
PRETEND_GPU_API const char* cudaGetErrorName(cudaError_t error);
PRETEND_GPU_API const char* cudaGetErrorString(cudaError_t error);
PRETEND_GPU_RUNTIME cudaRuntimeGetVersion(int* version);
PRETEND_GPU_RUNTIME cudaDriverGetVersion(int* version);

// Devices.
PRETEND_GPU_RUNTIME cudaGetDeviceCount(int* count);
PRETEND_GPU_RUNTIME cudaGetDevice(int* device);
PRETEND_GPU_RUNTIME cudaSetDevice(int device);
PRETEND_GPU_RUNTIME cudaDeviceSynchronize(void);
PRETEND_GPU_RUNTIME cudaDeviceGetAttribute(int* value, int attribute, int device);
PRETEND_GPU_RUNTIME cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device);
PRETEND_GPU_RUNTIME cudaDeviceGetPCIBusId(char* id, int bytes, int device);
PRETEND_GPU_RUNTIME cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
PRETEND_GPU_RUNTIME cudaDeviceCanAccessPeer(int* can, int device, int peer);
PRETEND_GPU_RUNTIME cudaDeviceEnablePeerAccess(int peer, unsigned flags);
PRETEND_GPU_RUNTIME cudaDeviceDisablePeerAccess(int peer);

// Memory.
PRETEND_GPU_RUNTIME cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
PRETEND_GPU_RUNTIME cudaMalloc(void** address, std::size_t bytes);
PRETEND_GPU_RUNTIME cudaFree(void* address);
PRETEND_GPU_RUNTIME cudaMallocHost(void** address, std::size_t bytes);
PRETEND_GPU_RUNTIME cudaHostAlloc(void** address, std::size_t bytes, unsigned flags);
PRETEND_GPU_RUNTIME cudaFreeHost(void* address);
PRETEND_GPU_RUNTIME cudaHostRegister(void* address, std::size_t bytes, unsigned flags);
PRETEND_GPU_RUNTIME cudaHostUnregister(void* address);
PRETEND_GPU_RUNTIME cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address);
PRETEND_GPU_RUNTIME cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
PRETEND_GPU_RUNTIME cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                    cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                        std::size_t bytes, cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaMemset(void* to, int value, std::size_t bytes);
PRETEND_GPU_RUNTIME cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);

// Streams and events.
PRETEND_GPU_RUNTIME cudaStreamCreate(cudaStream_t* stream);
PRETEND_GPU_RUNTIME cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
PRETEND_GPU_RUNTIME cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
PRETEND_GPU_RUNTIME cudaStreamDestroy(cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaStreamSynchronize(cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaStreamQuery(cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
PRETEND_GPU_RUNTIME cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                          unsigned flags);
PRETEND_GPU_RUNTIME cudaStreamIsCapturing(cudaStream_t stream, int* status);
PRETEND_GPU_RUNTIME cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int* status, unsigned long long* id,
                                                void** graph, const void*** dependencies, std::size_t* count);
PRETEND_GPU_RUNTIME cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
PRETEND_GPU_RUNTIME cudaEventCreate(cudaEvent_t* event);
PRETEND_GPU_RUNTIME cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
PRETEND_GPU_RUNTIME cudaEventDestroy(cudaEvent_t event);
PRETEND_GPU_RUNTIME cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaEventQuery(cudaEvent_t event);
PRETEND_GPU_RUNTIME cudaEventSynchronize(cudaEvent_t event);
PRETEND_GPU_RUNTIME cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

// Kernels, and what nvcc's code calls to register them.
PRETEND_GPU_RUNTIME cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                     std::size_t shared_bytes, cudaStream_t stream);
PRETEND_GPU_RUNTIME cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function);
PRETEND_GPU_RUNTIME cudaFuncSetAttribute(const void* function, int attribute, int value);
PRETEND_GPU_RUNTIME cudaFuncSetCacheConfig(const void* function, int config);
PRETEND_GPU_RUNTIME cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                                  int threads, std::size_t shared_bytes);
PRETEND_GPU_RUNTIME cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                           int threads,
                                                                           std::size_t shared_bytes,
                                                                           unsigned flags);
PRETEND_GPU_API void** __cudaRegisterFatBinary(void* binary);
PRETEND_GPU_API void __cudaRegisterFatBinaryEnd(void** handle);
PRETEND_GPU_API void __cudaUnregisterFatBinary(void** handle);
PRETEND_GPU_API void __cudaRegisterFunction(void** handle, const char* function, char* device_function,
                                            const char* name, int threads, void* thread, void* block,
                                            void* block_dim, void* grid_dim, int* warp_size);
PRETEND_GPU_API void __cudaRegisterVar(void** handle, char* host, char* device, const char* name,
                                       int external, std::size_t bytes, int constant, int global);
PRETEND_GPU_API void __cudaRegisterManagedVar(void** handle, void** host, char* device, const char* name,
                                              int external, std::size_t bytes, int constant, int global);
PRETEND_GPU_API char __cudaInitModule(void** handle);
PRETEND_GPU_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                                     cudaStream_t stream);
PRETEND_GPU_RUNTIME __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                               void* stream);

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_API_RUNTIME_H_
