// The waits of a rank's streams around NCCL's calls. The tests show, for each wait, that a test fails
// without it: under the policy that makes the other stream late.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/nccl_ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kCount = 1000;

struct Waits {
  bool comm_for_compute = true;
  bool ready_before_event = true;  // or the event behind the call is recorded when Enqueue returns
  bool compute_for_comm = true;
};

// Returns whether all ranks got the right sums.
bool SumsAreRight(const char* policy, Waits waits) {
  pretend_gpu_set_policy(policy);
  std::vector<char> right(3, 1);
  RunNcclRanks(3, [&](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    const DeviceMemory input(kCount * sizeof(int)), output(kCount * sizeof(int));
    for (int step = 0; step < 5; ++step) {
      input.Set(step + rank.rank, rank.compute);
      if (waits.comm_for_compute) rank.Order(rank.compute, rank.comm);
      ExpectOk(communicator->Enqueue(SumOfInts(rank, input, output, kCount), rank.comm_stream()));
      if (waits.ready_before_event) ExpectOk(AwaitReady(communicator.get()));
      cuda::Event event;
      ExpectOk(rank.events->Record(rank.comm_stream(), &event));
      if (!waits.ready_before_event) ExpectOk(AwaitReady(communicator.get()));
      if (waits.compute_for_comm) {
        CUDA_OK(cuStreamWaitEvent(rank.compute, reinterpret_cast<CUevent>(event.get()), 0));
      }
      const bool is_right = output.ReadInts(rank.compute) == std::vector<int>(kCount, 3 * step + 3);
      if (!is_right) right[static_cast<std::size_t>(rank.rank)] = 0;
      CUDA_OK(cuStreamSynchronize(rank.comm));
    }
  });
  pretend_gpu_set_policy("random");
  return right == std::vector<char>(3, 1);
}

TEST(NcclOrder, WithAllWaitsTheSumsAreRight) {
  for (const char* const policy : kNcclPolicies) EXPECT_TRUE(SumsAreRight(policy, {})) << policy;
}

TEST(NcclOrder, AnInputThatIsNotWaitedForIsReadTooEarly) {
  Waits waits;
  waits.comm_for_compute = false;
  EXPECT_FALSE(SumsAreRight("compute=lazy,comm=prompt", waits));
}

TEST(NcclOrder, AnEventThatIsRecordedBeforeTheCallIsReadyComesTooEarly) {
  Waits waits;
  waits.ready_before_event = false;
  EXPECT_FALSE(SumsAreRight("compute=prompt,comm=lazy", waits));
  EXPECT_FALSE(SumsAreRight("lazy", waits));
}

TEST(NcclOrder, AnOutputThatIsNotWaitedForIsReadTooEarly) {
  Waits waits;
  waits.compute_for_comm = false;
  EXPECT_FALSE(SumsAreRight("compute=prompt,comm=lazy", waits));
}

}  // namespace
}  // namespace tf_smddp::testing
