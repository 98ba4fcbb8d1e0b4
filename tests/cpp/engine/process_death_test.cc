// Ranks as processes over the real shared memory; one of them dies.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/processes.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

// Collectives of every kind and size for ever; returns the first error.
Status RunGroupsUntilFailure(Engine& engine) {
  std::mt19937 random(7);  // the same on all ranks
  std::vector<std::vector<float>> data(6, std::vector<float>(300000, 1.0f));
  for (;;) {
    std::uint64_t ticket = 0;
    const Status drawn = engine.DrawTicket(kWorld, kNoStep, &ticket);
    if (!drawn.ok()) return drawn;
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < data.size(); ++i) {
      const std::int64_t count = random() % 2 == 0 ? random() % 100 : random() % 300000;
      requests.push_back(InGroup(MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kMax,
                                             data[i].data(), data[i].data(), count),
                                 ticket, i, static_cast<std::uint32_t>(data.size())));
    }
    requests.push_back(
        MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum, nullptr, nullptr, 0));
    for (Status& status : AwaitAll(engine, std::move(requests))) {
      if (!status.ok()) return status;
    }
  }
}

TEST(ProcessDeath, SigkillAtARandomMomentFiftyTimes) {
  std::mt19937 random(std::random_device{}());
  // ThreadSanitizer does not see across processes, and its processes end slowly.
  for (int round = 0; round < (kThreadSanitizer ? 5 : 50); ++round) {
    const int victim = static_cast<int>(random() % 3);
    const std::chrono::microseconds when(random() % 30000);
    SCOPED_TRACE("round " + std::to_string(round) + ": rank " + std::to_string(victim) + " after " +
                 std::to_string(when.count()) + " us");
    KillOneRank(3, victim, SIGKILL, when, RunGroupsUntilFailure);
    if (HasFailure()) return;
  }
}

TEST(ProcessDeath, OtherSignalsAreNamed) {
  KillOneRank(2, 1, SIGTERM, std::chrono::milliseconds(5), RunGroupsUntilFailure);
  KillOneRank(4, 0, SIGQUIT, std::chrono::milliseconds(5), RunGroupsUntilFailure);
}

// Rank 1 leaves the process without a word.
Status ExitWithCodeThree(Engine& engine) {
  if (engine.config().rank == 1) ::_exit(3);
  return RunGroupsUntilFailure(engine);
}

TEST(ProcessDeath, AnExitWithoutShutdownIsNamed) {
  const PrivateDirectory directory;
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(StartRank(rank, 3, directory.path(), ExitWithCodeThree));
  }
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == 1) continue;
    const std::string report = ReadAll(children[static_cast<std::size_t>(rank)].report.get());
    EXPECT_NE(report.find("exited with code 3 without calling shutdown()"), std::string::npos) << report;
  }
  for (const Child& child : children) ::waitpid(child.pid, nullptr, 0);
}

// Rank 0 is gone, in good order, before the others have finished what needs no peer.
Status LeaveAndStay(Engine& engine) {
  std::vector<float> data(10, 1.0f);
  Status status = Await(engine, AllreduceFloats(data, &data));
  if (!status.ok()) return status;
  if (engine.config().rank != 0) ::usleep(200000);
  return engine.Shutdown().ok() ? Internal("left in good order") : Internal("an error");
}

TEST(ProcessDeath, AnExitAfterShutdownIsNoFailure) {
  const PrivateDirectory directory;
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) children.push_back(StartRank(rank, 3, directory.path(), LeaveAndStay));
  for (const Child& child : children) EXPECT_EQ(ReadAll(child.report.get()), "+left in good order");
  for (const Child& child : children) ::waitpid(child.pid, nullptr, 0);
}

}  // namespace
}  // namespace tf_smddp::testing
