// The point of it all: which policy finds which missing wait.
//
// A program computes x on one stream, 2x on another, and 2x + 1 on the first again, as a library of
// collectives does between two steps of a framework. An event orders each change of streams. Each wait is
// left out.
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

constexpr int kCount = 100;

int Index() {
  const ThreadIndex& thread = *CurrentThread();
  return static_cast<int>(thread.block_index.x * thread.block.x + thread.thread_index.x);
}

const Register fill("fill", EachThread(+[](int* x, int value) {
                      if (Index() < kCount) x[Index()] = value;
                    }));
const Register twice("twice", EachThread(+[](int* y, const int* x) {
                       if (Index() < kCount) y[Index()] = 2 * x[Index()];
                     }));
const Register increment("increment", EachThread(+[](int* z, const int* y) {
                           if (Index() < kCount) z[Index()] = y[Index()] + 1;
                         }));

enum class Found { kNever, kAlways, kInTheEnd, kByChance };

struct Case {
  const char* policy;
  Found comm_does_not_wait;     // for the compute stream
  Found compute_does_not_wait;  // for the communication stream
};

// README.md has this table, too.
const Case kCases[] = {
    {"prompt", Found::kNever, Found::kNever},
    {"random", Found::kInTheEnd, Found::kInTheEnd},
    {"compute=lazy,comm=prompt", Found::kAlways, Found::kByChance},
    {"compute=prompt,comm=lazy", Found::kNever, Found::kAlways},
    {"lazy", Found::kNever, Found::kAlways},
};

class PolicyTest : public Gpu, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    pretend_gpu_set_policy(GetParam().policy);
    compute_ = MakeStream("compute");
    comm_ = MakeStream("comm");
    OK(cuModuleLoadData(&module_, "any image"));
    for (CUdeviceptr* address : {&x_, &y_, &z_}) *address = Allocate(kCount * sizeof(int));
  }

  void TearDown() override {
    OK(cuCtxSynchronize());
    for (const CUdeviceptr address : {x_, y_, z_}) OK(cuMemFree_v2(address));
    OK(cuStreamDestroy_v2(compute_));
    OK(cuStreamDestroy_v2(comm_));
    OK(cuModuleUnload(module_));
    Gpu::TearDown();
  }

  void Launch(const char* kernel, CUstream stream, void** arguments) {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction(&function, module_, kernel));
    OK(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
  }

  void Order(CUstream first, CUstream then, bool wait) {
    const CUevent event = MakeEvent();
    OK(cuEventRecord(event, first));
    if (wait) {
      OK(cuStreamWaitEvent(then, event, 0));
    }
    OK(cuEventDestroy_v2(event));
  }

  // Returns whether the result is right.
  bool Trial(bool comm_waits, bool compute_waits) {
    int value = ++trials_;
    void* of_fill[] = {&x_, &value};
    void* of_twice[] = {&y_, &x_};
    void* of_increment[] = {&z_, &y_};
    Launch("fill", compute_, of_fill);
    Order(compute_, comm_, comm_waits);
    Launch("twice", comm_, of_twice);
    Order(comm_, compute_, compute_waits);
    Launch("increment", compute_, of_increment);
    int result[kCount] = {};
    const auto bytes = Read(z_, sizeof(result), compute_);
    std::memcpy(result, bytes.data(), sizeof(result));
    EXPECT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
    for (const int element : result) {
      if (element != 2 * value + 1) return false;
    }
    return true;
  }

  void Expect(Found found, bool comm_waits, bool compute_waits) {
    constexpr int kTrials = 20;
    constexpr int kMostTrials = 2000;  // a random policy finds each in more than one of ten
    int wrong = 0;
    for (int i = 0; i < (found == Found::kInTheEnd ? kMostTrials : kTrials); i++) {
      wrong += Trial(comm_waits, compute_waits) ? 0 : 1;
      if (found == Found::kInTheEnd && wrong > 0) return;
    }
    if (found == Found::kInTheEnd) FAIL() << "not found in " << kMostTrials << " trials";
    if (found == Found::kAlways) {
      EXPECT_EQ(kTrials, wrong);
    }
    if (found == Found::kNever) {
      EXPECT_EQ(0, wrong);
    }
  }

  int trials_ = 0;
  CUstream compute_ = nullptr, comm_ = nullptr;
  CUmodule module_ = nullptr;
  CUdeviceptr x_ = 0, y_ = 0, z_ = 0;
};

TEST_P(PolicyTest, WithBothWaitsTheResultIsRight) { Expect(Found::kNever, true, true); }

TEST_P(PolicyTest, CommunicationDoesNotWait) { Expect(GetParam().comm_does_not_wait, false, true); }

TEST_P(PolicyTest, ComputationDoesNotWait) { Expect(GetParam().compute_does_not_wait, true, false); }

INSTANTIATE_TEST_SUITE_P(All, PolicyTest, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.policy;
  for (char& c : name) {
    if (c == '=' || c == ',') c = '_';
  }
  return name;
});

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(1, "prompt", pretend_gpu::testing::kNever);
  return RUN_ALL_TESTS();
}
