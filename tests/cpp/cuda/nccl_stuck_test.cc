// The end of the job where nothing on a GPU ends: calls of NCCL wait for a rank that has died, and a thread
// of each other rank waits for them with the driver's lock, so that each call of the driver waits, too
// (PRETEND_GPU_CONTEXT_LOCK). Ranks are processes with a device each.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/processes.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/usage.h"

namespace tf_smddp::testing {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kStuckFloats = 5000;

milliseconds Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

// A count that the processes of all ranks see.
class SharedCount {
 public:
  SharedCount()
      : page_(::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)) {}
  std::atomic<int>& value() const { return *static_cast<std::atomic<int>*>(page_); }
  void AwaitAtLeast(int count) const {
    for (int tries = 0; tries < 40'000 && value() < count; ++tries) ::usleep(1000);
    ASSERT_GE(value(), count);
  }

 private:
  void* const page_;
};

std::uint64_t BytesByNccl(Engine& engine) {
  EngineStats stats;
  static_cast<void>(engine.Stats(/*reset=*/false, &stats));
  return stats.collectives[static_cast<std::size_t>(CollectiveKind::kAllreduce)].nccl_bytes;
}

// Two sums in one communicator.
struct TwoSums {
  TwoSums(CommunicatorId id, Compute* compute)
      : id(id), tensors{Floats(compute, kStuckFloats), Floats(compute, kStuckFloats)} {}

  Request Sum(int which) {
    Request request = Allreduce(tensors[which], "sum", &orders[which], &orders[which]);
    request.communicator = id;
    return request;
  }

  // NCCL's communicator is made.
  Status UseNccl(Engine& engine, Compute* compute) {
    const std::uint64_t before = BytesByNccl(engine);
    while (BytesByNccl(engine) == before) {
      compute->Mark(&orders[0]);
      Status status = Await(engine, Sum(0));
      if (status.ok()) status = Compute::AwaitWritten(orders[0]);
      if (!status.ok()) return status;
    }
    return {};
  }

  void SubmitSecond(Engine& engine) {
    Request request = Sum(1);
    request.done = [outcome = second](const Status& status) { outcome->set_value(status); };
    engine.Submit(std::move(request));
  }

  const CommunicatorId id;
  Floats tensors[2];
  cuda::Order orders[2];
  std::shared_ptr<std::promise<Status>> second = std::make_shared<std::promise<Status>>();
};

// The names of this process's threads that the engine has begun and that do not end within seconds, but for
// those that live as long as the process. Those that abort NCCL's communicators are detached.
std::string ThreadsLeft() {
  std::string left;
  for (int tries = 0; tries < 3000; ++tries) {
    left.clear();
    for (const std::string& name : ThreadNames()) {
      if (name.rfind("smddp-", 0) == 0 && name.find("-gpu") == std::string::npos) left += " " + name;
    }
    if (left.empty()) break;
    ::usleep(1000);
  }
  return left;
}

// The first sum of each set waits on the GPUs for that of `victim`, whose GPU does not come to it. When the
// driver is locked, the progress threads come to the second ones.
Status BeStuck(Engine& engine, int victim, int num_sets, std::atomic<int>* stuck) {
  const int rank = engine.config().rank;
  Compute compute(rank);
  std::vector<std::unique_ptr<TwoSums>> sets;
  for (int i = 0; i < num_sets; ++i) {
    CommunicatorId id = kWorld;
    std::vector<int> ranks(static_cast<std::size_t>(engine.config().size));
    std::iota(ranks.begin(), ranks.end(), 0);
    Status status = i == 0 ? Status() : engine.CreateCommunicator(ranks, &id);
    sets.push_back(std::make_unique<TwoSums>(id, &compute));
    if (status.ok()) status = sets.back()->UseNccl(engine, &compute);
    if (!status.ok()) return status;
  }
  Hold hold(compute.stream());
  if (rank != victim) hold.LetGo();
  for (const auto& set : sets) {
    for (cuda::Order& order : set->orders) {
      order = cuda::Order();
      compute.Mark(&order);
    }
  }
  for (const auto& set : sets) {
    const Status status = Await(engine, set->Sum(0));
    if (!status.ok()) return status;
  }
  if (rank == victim) {
    for (const auto& set : sets) set->SubmitSecond(engine);
    ++*stuck;
    ::sleep(60);  // until it is killed
  }
  Status error;
  {
    const Freeing freeing(compute);
    for (const auto& set : sets) set->SubmitSecond(engine);
    ::usleep(200'000);
    ++*stuck;
    for (const auto& set : sets) {
      error = set->second->get_future().get();
      if (error.ok()) return Internal("the second sum has no error");
      if (Compute::AwaitWritten(set->orders[0]).ok()) return Internal("the first sum has no error");
      static_cast<void>(Compute::AwaitWritten(set->orders[1]));  // NCCL may not have got it
    }
  }
  sets.clear();
  static_cast<void>(engine.Shutdown());
  const std::string left = ThreadsLeft();
  return left.empty() ? error : Internal("threads are left:" + left);
}

// The number of ranks, and of communicators.
class NcclStuckTest : public ::testing::TestWithParam<std::tuple<int, int>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, NcclStuckTest,
                         ::testing::Values(std::tuple(2, 1), std::tuple(3, 1), std::tuple(8, 1),
                                           std::tuple(2, 2), std::tuple(3, 2)));

TEST_P(NcclStuckTest, TheErrorNamesTheRankThatHasDied) {
  const auto [size, num_sets] = GetParam();
  const int victim = size - 1;
  const SharedCount stuck;
  const PrivateDirectory directory;
  const auto body = [&, num_sets = num_sets](Engine& engine) {
    return BeStuck(engine, victim, num_sets, &stuck.value());
  };
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(StartRank(rank, size, directory.path(), body));
  }
  for (const Child& child : children) AwaitMet(child);
  stuck.AwaitAtLeast(size);
  const pid_t dead = children.back().pid;
  ::kill(dead, SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < victim; ++rank) {
    const std::string report = ReadAll(children[static_cast<std::size_t>(rank)].report.get());
    EXPECT_LT(Since(begin), milliseconds(3000)) << "rank " << rank;  // half a second on an idle machine
    EXPECT_NE(
        report.find("rank " + std::to_string(victim) + " (pid " + std::to_string(dead) + ") was killed"),
        std::string::npos)
        << "rank " << rank << " says: " << report;
  }
  std::printf("%d ranks, %d communicators: %ld ms\n", size, num_sets,
              static_cast<long>(Since(begin).count()));
  for (const Child& child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child.pid, &status, 0), child.pid);
    EXPECT_TRUE(child.pid == dead || WEXITSTATUS(status) == 7) << status;
  }
}

// Rank 0's own computation does not end, so no abort of NCCL helps. A request that has not met its peers gets
// the error all the same; then the process ends.
TEST(NcclStuck, AGpuThatDoesNotGoOn) {
  const SharedCount stuck;
  LimitedRanks ranks(
      2, [](int, Config*) {},
      [&stuck](Engine& engine) {
        const int rank = engine.config().rank;
        Compute compute(rank);
        TwoSums sums(kWorld, &compute);
        Status status = sums.UseNccl(engine, &compute);
        if (!status.ok()) return status;
        Hold hold(compute.stream());
        if (rank == 1) hold.LetGo();
        for (cuda::Order& order : sums.orders) {
          order = cuda::Order();
          compute.Mark(&order);
        }
        status = Await(engine, sums.Sum(0));
        if (!status.ok()) return status;
        if (rank == 1) {
          sums.SubmitSecond(engine);
          stuck.AwaitAtLeast(1);
          engine.Abort("the test ends the job");
          status = sums.second->get_future().get();
          for (const cuda::Order& order : sums.orders) static_cast<void>(Compute::AwaitWritten(order));
          return status;
        }
        const Freeing freeing(compute);
        sums.SubmitSecond(engine);
        ::usleep(200'000);
        std::vector<float> host(3);
        Request request = Named(AllreduceFloats(host, &host), "alone");
        std::promise<Status> outcome;
        request.done = [&outcome](const Status& each) { outcome.set_value(each); };
        engine.Submit(std::move(request));
        ++stuck.value();
        const auto begin = std::chrono::steady_clock::now();
        status = outcome.get_future().get();
        std::fprintf(stderr, "after %s s: %s\n",
                     Since(begin) < milliseconds(3200) ? "about 2" : "more than 3", status.message().c_str());
        return Compute::AwaitWritten(sums.orders[0]);
      });
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  EXPECT_NE(ends[1].error.find("the test ends the job"), std::string::npos) << ends[1].error;
  EXPECT_TRUE(WIFEXITED(ends[0].wait_status) && WEXITSTATUS(ends[0].wait_status) == 1) << ends[0].wait_status;
  for (const char* const part :
       {"after about 2 s: allreduce", "failed: the test ends the job",
        "a collective has not ended, though the job has ended, so this process ends"}) {
    EXPECT_NE(ends[0].log.find(part), std::string::npos) << ends[0].log;
  }
}

// All collectives have ended, but the driver does not let shutdown() free what the engine has there.
TEST(NcclStuck, AShutdownThatDoesNotReturn) {
  const SharedCount stuck;
  LimitedRanks ranks(
      2, [](int, Config*) {},
      [&stuck](Engine& engine) {
        const int rank = engine.config().rank;
        Compute compute(rank);
        TwoSums sums(kWorld, &compute);
        const Status status = sums.UseNccl(engine, &compute);
        if (!status.ok() || rank == 1) {
          stuck.AwaitAtLeast(1);
          engine.Abort("the test ends the job");
          return status;
        }
        Hold hold(compute.stream());
        const Freeing freeing(compute);
        ++stuck.value();
        return engine.Shutdown();
      });
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  EXPECT_TRUE(WIFEXITED(ends[0].wait_status) && WEXITSTATUS(ends[0].wait_status) == 1) << ends[0].wait_status;
  EXPECT_NE(ends[0].log.find("shutdown() has not returned, though the job has ended"), std::string::npos)
      << ends[0].log;
}

}  // namespace
}  // namespace tf_smddp::testing
