// Ranks as processes, with work on GPUs under way; one of them dies. They have a GPU each, and NCCL, or share
// one.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/processes.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// Groups of tensors on this rank's device, packed and not, for ever; returns the first error.
Status RunGroupsOnGpusUntilFailure(Engine& engine, Compute* compute) {
  constexpr std::size_t kCounts[] = {1, 1000, 40000, 100000, 3, 200000};
  constexpr auto kTensors = static_cast<std::uint32_t>(std::size(kCounts));
  std::vector<std::unique_ptr<Floats>> tensors;
  for (const std::size_t count : kCounts) tensors.push_back(std::make_unique<Floats>(compute, count));
  for (;;) {
    std::uint64_t ticket = 0;
    const Status drawn = engine.DrawTicket(kWorld, kNoStep, &ticket);
    if (!drawn.ok()) return drawn;
    std::vector<cuda::Order> orders(kTensors);
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < kTensors; ++i) {
      tensors[i]->Set(1.0f);
      compute->Mark(&orders[i]);
      requests.push_back(InGroup(Allreduce(*tensors[i], *tensors[i]), ticket, i, kTensors));
      requests.back().input.stream = requests.back().output.stream = &orders[i];
    }
    std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
    // The tensors live until nothing on a stream uses them.
    for (const cuda::Order& order : orders) statuses.push_back(Compute::AwaitWritten(order));
    for (const Status& status : statuses) {
      if (!status.ok()) return status;
    }
  }
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// After the error, no thread of the process computes: what is on the streams has been given up.
Status RunUntilFailureAndRest(Engine& engine, const char* policy, bool share) {
  pretend_gpu_set_policy(policy);
  Compute compute(share ? 0 : engine.config().rank);
  Status error = RunGroupsOnGpusUntilFailure(engine, &compute);
  ::usleep(200000);
  const double before = CpuSeconds();
  ::usleep(300000);
  if (CpuSeconds() - before > 0.1) return Internal("a thread spins, after: " + error.message());
  return error;
}

// A policy, and whether the ranks share a GPU.
class GpuDeathTest : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

INSTANTIATE_TEST_SUITE_P(Policies, GpuDeathTest,
                         ::testing::Combine(::testing::Values("prompt", "random", "compute=lazy,*=prompt",
                                                              "compute=prompt,*=lazy", "lazy"),
                                            ::testing::Bool()));

TEST_P(GpuDeathTest, SigkillAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  const auto body = [](Engine& engine) {
    const auto [policy, share] = GetParam();
    return RunUntilFailureAndRest(engine, policy, share);
  };
  for (const int stopped : {0, 400}) {
    const int victim = static_cast<int>(random() % 3);
    const std::chrono::microseconds when(random() % 300000);
    SCOPED_TRACE("rank " + std::to_string(victim) + " after " + std::to_string(when.count()) +
                 " us, stopped " + "for " + std::to_string(stopped) + " ms before");
    KillOneRank(3, victim, SIGKILL, when, body, std::chrono::milliseconds(stopped));
    if (HasFailure()) return;
  }
}

// On two hosts, which a wire joins.
TEST(GpuDeathOnHosts, SigkillAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  for (const char* const policy : {"prompt", "random", "compute=lazy,*=prompt", "compute=prompt,*=lazy"}) {
    SCOPED_TRACE(policy);
    const int size = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const auto body = [policy](Engine& engine) {
      return RunUntilFailureAndRest(engine, policy, /*share=*/false);
    };
    for (const RankEnd& end :
         KillOneOnHosts(2, size, victim, std::chrono::microseconds(random() % 300000), body)) {
      EXPECT_EQ(end.error.find("spins"), std::string::npos) << end.error;
    }
    if (HasFailure()) return;
  }
}

// As an exception that ends a rank's program does.
TEST_P(GpuDeathTest, AbortAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  const int aborting = static_cast<int>(random() % 3);
  const std::chrono::milliseconds wait(random() % 300);
  const auto body = [aborting, wait](Engine& engine) {
    const auto when = std::chrono::steady_clock::now() + wait;  // all ranks have met by now
    std::thread thread;
    if (engine.config().rank == aborting) {
      thread = std::thread([&engine, when] {
        std::this_thread::sleep_until(when);
        engine.Abort("the test aborts");
      });
    }
    const auto [policy, share] = GetParam();
    const Status error = RunUntilFailureAndRest(engine, policy, share);
    // Half a second of it is the rest.
    const bool late = std::chrono::steady_clock::now() - when > std::chrono::milliseconds(2500);
    if (thread.joinable()) thread.join();
    return late ? Internal("too late: " + error.message()) : error;
  };
  const PrivateDirectory directory;
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) children.push_back(StartRank(rank, 3, directory.path(), body));
  for (const Child& child : children) AwaitMet(child);
  for (const Child& child : children) {
    const std::string report = ReadAll(child.report.get());
    EXPECT_NE(report.find("the test aborts"), std::string::npos) << report;
    EXPECT_EQ(report.find("too late"), std::string::npos) << report;
  }
  for (const Child& child : children) EXPECT_EQ(::waitpid(child.pid, nullptr, 0), child.pid);
}

}  // namespace
}  // namespace tf_smddp::testing
