// Paced streams and the trace: what works takes a time, and what runs beside what can be read.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

constexpr std::int64_t kPaceUs = 100'000;

std::string TracePath() { return std::string(std::getenv("TEST_TMPDIR")) + "/trace"; }

struct Traced {
  std::string role, call;
  std::int64_t queued = 0, begin = 0, end = 0;
};

// By the time at which they ended.
std::vector<Traced> ReadTrace() {
  std::ifstream file(TracePath());
  std::vector<Traced> tasks;
  Traced task;
  std::string pid, device;
  for (std::string line; std::getline(file, line); tasks.push_back(task)) {
    std::istringstream words(line);
    words >> pid >> device >> task.role >> task.call >> task.queued >> task.begin >> task.end;
  }
  return tasks;
}

class TraceTest : public Gpu {};

TEST_F(TraceTest, ShowsThatPacedStreamsRunBesideEachOtherAndTheHostDoesNotWait) {
  const CUstream one = MakeStream("one"), other = MakeStream("other");
  const CUevent event = MakeEvent();
  const CUdeviceptr address = Allocate(3);
  OK(cuMemsetD8Async(address, 1, 1, one));
  OK(cuEventRecord(event, one));
  OK(cuMemsetD8Async(address + 1, 2, 1, one));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemsetD8Async(address + 2, 3, 1, other));
  OK(cuStreamSynchronize(one));
  OK(cuStreamSynchronize(other));
  Traced first, second, beside;
  for (const Traced& task : ReadTrace()) {
    EXPECT_EQ("cuMemsetD8Async", task.call);  // events take no time, and are not there
    EXPECT_GE(task.begin, task.queued);
    EXPECT_GE(task.end - task.begin, kPaceUs);
    (task.role == "other" ? beside : first.role.empty() ? first : second) = task;
  }
  EXPECT_EQ("one", second.role);
  EXPECT_EQ("other", beside.role);
  EXPECT_LT(second.queued, first.end);
  EXPECT_GE(second.begin, first.end);
  EXPECT_GE(beside.begin, first.end);  // by the event
  EXPECT_LT(beside.begin, second.end);
  OK(cuMemFree_v2(address));
}

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(1, "paced", pretend_gpu::testing::kNever);
  setenv("PRETEND_GPU_PACE_US", std::to_string(pretend_gpu::testing::kPaceUs).c_str(), 1);
  setenv("PRETEND_GPU_TRACE", pretend_gpu::testing::TracePath().c_str(), 1);
  return RUN_ALL_TESTS();
}
