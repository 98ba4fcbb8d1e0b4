// A call that fails on one rank, in a process that has PRETEND_GPU_NCCL_FAIL=1:3: the third call of rank 1.
#include <chrono>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/nccl_ranks.h"

namespace tf_smddp::testing {
namespace {

// Polls until it has an error.
Status AwaitError(nccl::Communicator* communicator) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Status status;
  while (status.ok() && std::chrono::steady_clock::now() < end) {
    bool ready = false;
    status = communicator->Poll(&ready);
    EXPECT_TRUE(status.ok() || !ready);
  }
  return status;
}

TEST(NcclFailure, IsToldByPollOnAllRanksAndTheirStreamsEndWithTheAbort) {
  for (const char* const policy : {"prompt", "random"}) {
    pretend_gpu_set_policy(policy);
    RunNcclRanks(3, [](const NcclRank& rank, const nccl::UniqueId& id) {
      auto communicator = rank.Join(id);
      constexpr std::size_t kInts = 10;
      const DeviceMemory data(kInts * sizeof(int));
      data.Set(1, rank.compute);
      rank.Order(rank.compute, rank.comm);
      int sum = 1;
      Status third;
      for (int call = 1; call <= 3; ++call) {
        Status enqueued = communicator->Enqueue(SumOfInts(rank, data, data, kInts), rank.comm_stream());
        if (call == 3) {
          third = enqueued;
          break;
        }
        ExpectOk(enqueued);
        // Rank 1 may have failed in its third call before this one's second is polled for.
        bool ready = false;
        while (enqueued.ok() && !ready) enqueued = communicator->Poll(&ready);
        sum *= 3;
        EXPECT_EQ(std::vector<int>(kInts, sum), data.ReadInts(rank.comm));
      }
      const Status status = AwaitError(communicator.get());
      ExpectError(status, rank.rank == 1
                              ? "a call that NCCL had begun failed: a call of the system failed (2)"
                              : "a call that NCCL had begun failed: another rank has failed");
      ExpectError(communicator->Enqueue(SumOfInts(rank, data, data, kInts), rank.comm_stream()), "failed: ");
      if (rank.rank == 1) ExpectOk(third);
      if (third.ok()) {
        EXPECT_NE(CUDA_SUCCESS, cuStreamQuery(rank.comm));
      }
      communicator->Abort();
      EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.comm));
    });
  }
  pretend_gpu_set_policy("random");
}

}  // namespace
}  // namespace tf_smddp::testing
