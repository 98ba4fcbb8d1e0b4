// Several devices: contexts, attributes, copies between them; kernels; the runtime API; polling.
#include <atomic>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

const Register add("add", EachThread(+[](int* x, int value, int count) {
                     const ThreadIndex& t = *CurrentThread();
                     const int i = static_cast<int>(t.block_index.x * t.block.x + t.thread_index.x);
                     if (i < count) x[i] += value;
                   }));
// A twin of all kernels whose names begin so.
const Register prefixed("prefix_*", [](const Launch& launch, void** arguments) {
  int* at = At(*static_cast<int**>(arguments[0]));
  return [at, length = std::strlen(launch.name)] { *at = static_cast<int>(length); };
});

class DevicesTest : public Gpu {};

TEST_F(DevicesTest, DevicesHaveNamesNumbersAndAttributes) {
  int count = 0, value = 0;
  OK(cuDeviceGetCount(&count));
  ASSERT_EQ(2, count);
  CUdevice device = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
  EXPECT_EQ(32, value);
  char first[20], second[20];
  OK(cuDeviceGetPCIBusId(first, sizeof(first), 0));
  OK(cuDeviceGetPCIBusId(second, sizeof(second), 1));
  EXPECT_STRNE(first, second);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaSuccess, cudaGetDeviceProperties_v2(&properties, 1));
  EXPECT_EQ(8, properties.major);
  EXPECT_EQ(std::size_t{64} << 20, properties.totalGlobalMem);
}

TEST_F(DevicesTest, ABrokenDeviceReturnsOneErrorForEver) {
  CUcontext one = nullptr;
  OK(cuDevicePrimaryCtxRetain(&one, 1));
  OK(cuCtxPushCurrent_v2(one));
  const CUstream stream = MakeStream();
  const CUevent event = MakeEvent();
  pretend_gpu_break_device(1, 1);
  OK(cuEventRecord(event, stream));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventRecord(event, stream));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(event));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cudaStreamSynchronize(stream));
  }
  const char* name = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
  EXPECT_STREQ("CUDA_ERROR_ILLEGAL_ADDRESS", name);
  pretend_gpu_break_device(1, -1);
  CUcontext popped = nullptr;
  OK(cuCtxPopCurrent_v2(&popped));
  OK(cuCtxSynchronize());  // the other device is whole
  OK(cuDevicePrimaryCtxRelease_v2(1));
}

TEST_F(DevicesTest, EachThreadHasAStackOfContexts) {
  CUcontext one = nullptr, current = nullptr;
  CUdevice device = -1;
  OK(cuDevicePrimaryCtxRetain(&one, 1));
  OK(cuCtxPushCurrent_v2(one));
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(1, device);
  std::thread([&] {
    CUcontext none = one;
    OK(cuCtxGetCurrent(&none));
    EXPECT_EQ(nullptr, none);
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
  }).join();
  OK(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(one, current);
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(context_, current);
  int active = 0;
  unsigned flags = 0;
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(1, active);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(0, active);
}

TEST_F(DevicesTest, CopiesBetweenDevices) {
  CUcontext one = nullptr;
  OK(cuDevicePrimaryCtxRetain(&one, 1));
  const CUdeviceptr here = Allocate(4);
  OK(cuCtxPushCurrent_v2(one));
  const CUdeviceptr there = Allocate(4);
  OK(cuCtxPopCurrent_v2(nullptr));
  int value = 42;
  OK(cuMemcpyHtoD_v2(here, &value, 4));
  OK(cuMemcpyPeer(there, one, here, context_, 4));
  value = 0;
  OK(cuMemcpyDtoH_v2(&value, there, 4));
  EXPECT_EQ(42, value);
  EXPECT_DEATH(cuMemcpyPeer(there, context_, here, context_, 4), "pass the context of its device");
  OK(cuMemFree_v2(here));
  OK(cuMemFree_v2(there));
  OK(cuDevicePrimaryCtxRelease_v2(1));
}

TEST_F(DevicesTest, KernelsAreTwinsOfTheirNames) {
  const std::uint64_t before = pretend_gpu_launches("add");
  CUmodule module = nullptr;
  CUfunction function = nullptr, other = nullptr;
  OK(cuModuleLoadData(&module, "image"));
  OK(cuModuleGetFunction(&function, module, "add"));
  OK(cuModuleGetFunction(&other, module, "prefix_of_many"));
  CUdeviceptr x = Allocate(100 * sizeof(int));
  OK(cuMemsetD32_v2(x, 1, 100));
  int value = 2, count = 100;
  void* arguments[] = {&x, &value, &count};
  OK(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
  value = 1000;  // arguments are read by the launch
  int result[100];
  OK(cuMemcpyDtoH_v2(result, x, sizeof(result)));
  for (const int element : result) EXPECT_EQ(3, element);
  OK(cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuMemcpyDtoH_v2(result, x, sizeof(int)));
  EXPECT_EQ(14, result[0]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, nullptr, arguments, nullptr));
  EXPECT_EQ(before + 3, pretend_gpu_launches("add"));
  OK(cuModuleUnload(module));
  OK(cuMemFree_v2(x));
}

TEST_F(DevicesTest, TheRuntimeApiIsTheDriversUnderOtherNames) {
  std::thread([] {  // the runtime API makes a device current by itself
    int device = -1;
    ASSERT_EQ(cudaSuccess, cudaGetDevice(&device));
    EXPECT_EQ(0, device);
    ASSERT_EQ(cudaSuccess, cudaSetDevice(1));
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cudaSetDevice(2));
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cudaPeekAtLastError());
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cudaGetLastError());
    EXPECT_EQ(cudaSuccess, cudaGetLastError());
    EXPECT_STREQ("there is no device of this number", cudaGetErrorString(CUDA_ERROR_INVALID_DEVICE));
    static char host_stub;
    __cudaRegisterFunction(nullptr, &host_stub, nullptr, "add", 0, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
    int* x = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&x), sizeof(int)));
    ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_EQ(cudaSuccess, cudaEventCreate(&event));
    ASSERT_EQ(cudaSuccess, cudaMemsetAsync(x, 0, sizeof(int), stream));
    int value = 7, count = 1;
    void* arguments[] = {&x, &value, &count};
    ASSERT_EQ(cudaSuccess, cudaLaunchKernel(&host_stub, {1, 1, 1}, {1, 1, 1}, arguments, 0, stream));
    ASSERT_EQ(cudaSuccess, cudaEventRecord(event, stream));
    ASSERT_EQ(cudaSuccess, cudaEventSynchronize(event));
    int result = 0;
    ASSERT_EQ(cudaSuccess, cudaMemcpy(&result, x, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(7, result);
    cudaPointerAttributes attributes;
    ASSERT_EQ(cudaSuccess, cudaPointerGetAttributes(&attributes, x));
    EXPECT_EQ(cudaMemoryTypeDevice, attributes.type);
    EXPECT_EQ(1, attributes.device);
    ASSERT_EQ(cudaSuccess, cudaEventDestroy(event));
    ASSERT_EQ(cudaSuccess, cudaStreamDestroy(stream));
    ASSERT_EQ(cudaSuccess, cudaFree(x));
    ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  })
      .join();
}

TEST_F(DevicesTest, FunctionsAreFoundByName) {
  void* function = nullptr;
  OK(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, nullptr));
  EXPECT_EQ(reinterpret_cast<void*>(&cuMemAlloc_v2), function);
  OK(cuGetProcAddress_v2("cuEventRecord", &function, 12000, 0, nullptr));
  EXPECT_EQ(reinterpret_cast<void*>(&cuEventRecord), function);
}

// This program's lazy time is short, so that who polls comes to an end.
TEST_F(DevicesTest, WhoPollsALazyStreamComesToAnEnd) {
  pretend_gpu_set_policy("lazy");
  const CUstream stream = MakeStream();
  const CUevent event = MakeEvent();
  OK(cuEventRecord(event, stream));
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  OK(cuStreamDestroy_v2(stream));
  pretend_gpu_set_policy("prompt");
}

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(2, "prompt", "10000");
  return RUN_ALL_TESTS();
}
