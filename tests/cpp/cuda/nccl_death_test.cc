// Ranks as processes, with calls of NCCL under way; one of them dies.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"
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
Status RunUntilFailureAndRest(Engine& engine, const char* policy) {
  pretend_gpu_set_policy(policy);
  Compute compute(engine.config().rank);
  Status error = RunGroupsOnGpusUntilFailure(engine, &compute);
  ::usleep(200000);
  const double before = CpuSeconds();
  ::usleep(300000);
  if (CpuSeconds() - before > 0.1) return Internal("a thread spins, after: " + error.message());
  return error;
}

class NcclDeathTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Policies, NcclDeathTest,
                         ::testing::Values("prompt", "random", "compute=lazy,*=prompt",
                                           "compute=prompt,*=lazy", "lazy"));

TEST_P(NcclDeathTest, SigkillAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 2; ++round) {
    const int victim = static_cast<int>(random() % 3);
    const std::chrono::microseconds when(random() % 300000);
    SCOPED_TRACE("rank " + std::to_string(victim) + " after " + std::to_string(when.count()) + " us");
    KillOneRank(3, victim, SIGKILL, when,
                [](Engine& engine) { return RunUntilFailureAndRest(engine, GetParam()); });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tf_smddp::testing
