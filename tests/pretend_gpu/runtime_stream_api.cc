// The runtime API: streams, events, kernels. Only the names of kernels are kept of fat binaries.
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/pretend_gpu/driver_call.h"
#include "tests/pretend_gpu/launch.h"
#include "tests/pretend_gpu/runtime_call.h"

using pretend_gpu::Keep;
using pretend_gpu::RoleOfCaller;

#define ENTER PRETEND_GPU_RUNTIME_ENTER

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  ENTER;
  *stream = pretend_gpu::MakeStream(0, 0, RoleOfCaller(__builtin_return_address(0)));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  ENTER;
  *stream = pretend_gpu::MakeStream(flags, 0, RoleOfCaller(__builtin_return_address(0)));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  ENTER;
  *stream = pretend_gpu::MakeStream(flags, priority, RoleOfCaller(__builtin_return_address(0)));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER;
  return Keep(cuStreamDestroy_v2(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER;
  return Keep(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER;
  return Keep(cuStreamQuery(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  ENTER;
  return Keep(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  ENTER;
  return Keep(cuStreamAddCallback(stream, callback, data, flags));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* status) {
  return cuStreamIsCapturing(stream, status);
}

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int* status, unsigned long long*, void**,
                                        const void***, std::size_t*) {
  return cuStreamIsCapturing(stream, status);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  ENTER;
  return Keep(cuLaunchHostFunc(stream, function, data));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  ENTER;
  return Keep(cuEventCreate(event, 0));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ENTER;
  return Keep(cuEventCreate(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER;
  return Keep(cuEventDestroy_v2(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER;
  return Keep(cuEventRecord(event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER;
  return Keep(cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER;
  return Keep(cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  ENTER;
  return Keep(cuEventElapsedTime(milliseconds, begin, end));
}

namespace {

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;  // of <<<>>> launches

std::mutex mu;

// The names of kernels, by the host functions that stand for them. Guarded by mu.
std::map<const void*, std::string>& Names() {
  static auto* names = new std::map<const void*, std::string>;
  return *names;
}

std::string NameOf(const void* function) {
  std::lock_guard<std::mutex> lock(mu);
  const auto found = Names().find(function);
  if (found == Names().end()) {
    pretend_gpu::End("%p was never registered as a kernel; launch a function that nvcc compiled", function);
  }
  return found->second;
}

}  // namespace

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  ENTER;
  const bool launched = pretend_gpu::LaunchKernel(
      NameOf(function), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
      static_cast<unsigned>(shared_bytes), pretend_gpu::StreamOf(stream), arguments);
  return Keep(launched ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  ENTER;
  NameOf(function);
  *attributes = {0, 0, 0, 1024, 32, 80, 80};
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, int, int) {
  ENTER;
  NameOf(function);
  return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void* function, int) {
  ENTER;
  NameOf(function);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int,
                                                          std::size_t) {
  ENTER;
  NameOf(function);
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                   int threads, std::size_t shared_bytes,
                                                                   unsigned) {
  ENTER;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}

// The handle of a fat binary is not used again, so a place for all of them is enough.
void** __cudaRegisterFatBinary(void*) {
  static void* place = nullptr;
  return &place;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*,
                            void*, int*) {
  std::lock_guard<std::mutex> lock(mu);
  Names()[function] = name;
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}

char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return cudaErrorInvalidValue;
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}
