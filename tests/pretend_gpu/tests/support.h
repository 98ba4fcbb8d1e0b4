// The shared part of the stand-in's own tests.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_TESTS_SUPPORT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_TESTS_SUPPORT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"

namespace pretend_gpu::testing {

// Fails the test unless the call succeeds.
#define OK(call) ASSERT_EQ(CUDA_SUCCESS, (call)) << #call

// Long enough that a lazy stream never goes on by itself in a test.
inline constexpr const char* kNever = "3600000000";

// Sets variables of the environment. It must be called before the first call of the stand-in.
void Configure(int devices, const char* policy, const char* lazy_us);

// Each test has the primary context of device 0.
class Gpu : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Returns a stream that is not ordered with the default stream.
  CUstream MakeStream(const char* role = "test");
  CUevent MakeEvent(unsigned flags = CU_EVENT_DISABLE_TIMING);
  CUdeviceptr Allocate(std::size_t bytes);

  // Copies `bytes` bytes from the device, after all that is on the stream.
  std::vector<unsigned char> Read(CUdeviceptr address, std::size_t bytes, CUstream stream = nullptr);

  CUcontext context_ = nullptr;
};

}  // namespace pretend_gpu::testing

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_TESTS_SUPPORT_H_
