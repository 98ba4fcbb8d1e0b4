// Ranks as processes that share a GPU: its memory goes from one to the other by IPC handles. It runs on a
// real GPU, too (tests/gpu).
#include <sys/wait.h>

#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/statistics.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/testing/processes.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// Sums of small tensors, and of one that takes more than all slots.
Status SumAndShutDown(Engine& engine) {
  const auto rank = static_cast<float>(engine.config().rank);
  const auto size = static_cast<float>(engine.config().size);
  {
    Compute compute;
    Floats few(&compute, 10), many(&compute, (5 << 20) + 1);
    Status status = UseGpus(engine, &compute, few);
    for (int step = 0; status.ok() && step < 4; ++step) {
      Floats& data = step == 2 ? many : few;
      data.Set(rank + static_cast<float>(step));
      compute.Mark();
      status = Await(engine, Allreduce(data, data));
      if (status.ok()) status = compute.AwaitWritten();
      const float sum = size * (size - 1) / 2 + size * static_cast<float>(step);
      if (status.ok() && data.Read() != std::vector<float>(data.count(), sum)) {
        status = Internal("step " + std::to_string(step) + " has a wrong sum");
      }
    }
    if (!status.ok()) return status;
  }
  EngineStats stats;
  Status status = engine.Stats(/*reset=*/false, &stats);
  const CollectiveStats& sums = stats.collectives[static_cast<std::size_t>(CollectiveKind::kAllreduce)];
  if (status.ok() && sums.ipc_bytes < std::size_t{20} << 20) {
    status = Internal("the tensors went through the host");
  }
  if (status.ok()) status = engine.Shutdown();
  return status.ok() ? Internal("all is well") : status;
}

TEST(IpcProcesses, ReduceOnTheGpuThatTheyShare) {
  for (const int size : {2, 3}) {
    const PrivateDirectory directory;
    std::vector<Child> children;
    for (int rank = 0; rank < size; ++rank) {
      children.push_back(StartRank(rank, size, directory.path(), SumAndShutDown));
    }
    for (const Child& child : children) AwaitMet(child);
    for (const Child& child : children) EXPECT_EQ(ReadAll(child.report.get()), "all is well");
    for (const Child& child : children) EXPECT_EQ(::waitpid(child.pid, nullptr, 0), child.pid);
  }
}

}  // namespace
}  // namespace tf_smddp::testing
