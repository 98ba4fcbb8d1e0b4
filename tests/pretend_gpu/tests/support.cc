#include "tests/pretend_gpu/tests/support.h"

#include <cstdlib>

#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu::testing {

void Configure(int devices, const char* policy, const char* lazy_us) {
  setenv("PRETEND_GPU_DEVICES", std::to_string(devices).c_str(), 1);
  setenv("PRETEND_GPU_MEMORY_MB", "64", 1);
  setenv("PRETEND_GPU_POLICY", policy, 1);
  setenv("PRETEND_GPU_LAZY_US", lazy_us, 1);
  // Each death test runs in a new process, since the streams' threads do not survive a fork.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
}

void Gpu::SetUp() {
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  OK(cuCtxSetCurrent(context_));
}

void Gpu::TearDown() {
  OK(cuCtxSetCurrent(context_));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(nullptr));
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

CUstream Gpu::MakeStream(const char* role) {
  CUstream stream = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  pretend_gpu_set_stream_role(stream, role);
  return stream;
}

CUevent Gpu::MakeEvent(unsigned flags) {
  CUevent event = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuEventCreate(&event, flags));
  return event;
}

CUdeviceptr Gpu::Allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc_v2(&address, bytes));
  return address;
}

std::vector<unsigned char> Gpu::Read(CUdeviceptr address, std::size_t bytes, CUstream stream) {
  std::vector<unsigned char> host(bytes);
  EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(host.data(), address, bytes, stream));
  return host;
}

}  // namespace pretend_gpu::testing
