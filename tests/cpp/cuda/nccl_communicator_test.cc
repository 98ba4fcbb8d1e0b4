// A communicator's life: made without waiting, in use, aborted.
#include "kernels/collectives/backends/nccl/nccl_communicator.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/nccl_ranks.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFew = 100;
constexpr std::size_t kFewBytes = kFew * sizeof(int);

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// Expects the sum of `values` over the ranks of a communicator.
void ExpectSum(const NcclRank& rank, nccl::Communicator* communicator, int value, int sum) {
  const DeviceMemory data(kFewBytes);
  data.Set(value, rank.compute);
  rank.Order(rank.compute, rank.comm);
  ExpectOk(communicator->Enqueue(SumOfInts(rank, data, data, kFew), rank.comm_stream()));
  ExpectOk(AwaitReady(communicator));
  rank.Order(rank.comm, rank.compute);
  EXPECT_EQ(std::vector<int>(kFew, sum), data.ReadInts(rank.compute));
}

// Rank 1 joins only when rank 0 has been told, several times, that it is not ready.
TEST(NcclCommunicator, IsMadeWithoutWaiting) {
  std::promise<void> polled;
  RunNcclRanks(2, [&](const NcclRank& rank, const nccl::UniqueId& id) {
    if (rank.rank == 1) polled.get_future().wait();
    std::unique_ptr<nccl::Communicator> communicator;
    ExpectOk(nccl::Communicator::Make(rank.place, id, 2, rank.rank, &communicator));
    if (rank.rank == 0) {
      for (int i = 0; i < 10; ++i) {
        bool ready = true;
        ExpectOk(communicator->Poll(&ready));
        EXPECT_FALSE(ready);
        Pause();
      }
      const DeviceMemory data(kFewBytes);
      ExpectError(communicator->Enqueue(SumOfInts(rank, data, data, kFew), rank.comm_stream()), "still busy");
      polled.set_value();
    }
    ExpectOk(AwaitReady(communicator.get()));
    ExpectSum(rank, communicator.get(), rank.rank + 1, 3);
  });
}

TEST(NcclCommunicator, IsBusyUntilAPollHasSaidThatItIsReady) {
  RunNcclRanks(2, [](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    const DeviceMemory data(kFewBytes);
    const auto calls = SumOfInts(rank, data, data, kFew);
    data.Set(1, rank.compute);
    rank.Order(rank.compute, rank.comm);
    ExpectOk(communicator->Enqueue({}, rank.comm_stream()));  // nothing, and nothing in progress
    ExpectOk(communicator->Enqueue(calls, rank.comm_stream()));
    ExpectError(communicator->Enqueue(calls, rank.comm_stream()), "still busy");
    ExpectOk(AwaitReady(communicator.get()));
    ExpectOk(communicator->Enqueue(calls, rank.comm_stream()));
    ExpectOk(AwaitReady(communicator.get()));
    EXPECT_EQ(std::vector<int>(kFew, 4), data.ReadInts(rank.comm));
  });
}

TEST(NcclCommunicator, TheNextGroupNeedsNoPollAfterTheLaunch) {
  RunNcclRanks(2, [](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    const DeviceMemory data(kFewBytes);
    const auto calls = SumOfInts(rank, data, data, kFew);
    data.Set(1, rank.comm);
    for (int group = 0; group < 3; ++group) {
      ExpectOk(communicator->Enqueue(calls, rank.comm_stream()));
      ExpectOk(communicator->AwaitLaunch());
    }
    EXPECT_EQ(std::vector<int>(kFew, 8), data.ReadInts(rank.comm));
  });
}

// The other rank does not come.
TEST(NcclCommunicator, ALaunchIsNotAwaitedForLong) {
  RunNcclRanks(1, [](const NcclRank& rank, const nccl::UniqueId& id) {
    std::unique_ptr<nccl::Communicator> communicator;
    ExpectOk(nccl::Communicator::Make(rank.place, id, 2, 0, &communicator));
    const auto begin = Clock::now();
    ExpectOk(communicator->AwaitLaunch());
    EXPECT_GE(Clock::now() - begin, std::chrono::microseconds(100));
    ExpectError(communicator->Enqueue({}, rank.comm_stream()), "still busy");
  });
}

// Whoever drives the progress may have another device current.
TEST(NcclCommunicator, MakesItsCallsOnItsDevice) {
  RunNcclRanks(2, [](const NcclRank& rank, const nccl::UniqueId& id) {
    const DeviceMemory data(kFewBytes);
    data.Set(rank.rank + 1, rank.comm);
    CUcontext own = nullptr, other = nullptr, left = nullptr;
    CUDA_OK(cuCtxGetCurrent(&own));
    CUDA_OK(cuDevicePrimaryCtxRetain(&other, 3));
    CUDA_OK(cuCtxSetCurrent(other));
    auto communicator = rank.Join(id);
    ExpectOk(communicator->Enqueue(SumOfInts(rank, data, data, kFew), rank.comm_stream()));
    ExpectOk(AwaitReady(communicator.get()));
    CUDA_OK(cuCtxGetCurrent(&left));
    EXPECT_EQ(other, left);
    CUDA_OK(cuCtxSetCurrent(own));
    EXPECT_EQ(std::vector<int>(kFew, 3), data.ReadInts(rank.comm));
  });
}

// Aborts in another thread; returns how long that took.
std::chrono::duration<double> AbortElsewhere(nccl::Communicator* communicator) {
  const auto begin = Clock::now();
  std::thread([&] { communicator->Abort(); }).join();
  return Clock::now() - begin;
}

// Rank 1 does not come, and rank 0's stream waits for it until the abort.
TEST(NcclAbort, EndsACollectiveThatWaitsForAMissingRank) {
  for (const char* const policy : kNcclPolicies) {
    SCOPED_TRACE(policy);
    pretend_gpu_set_policy(policy);
    RunNcclRanks(2, [](const NcclRank& rank, const nccl::UniqueId& id) {
      auto communicator = rank.Join(id);
      const DeviceMemory data(kFewBytes);
      if (rank.rank == 0) {
        data.Set(1, rank.compute);
        rank.Order(rank.compute, rank.comm);
        ExpectOk(communicator->Enqueue(SumOfInts(rank, data, data, kFew), rank.comm_stream()));
        ExpectOk(AwaitReady(communicator.get()));
        // As a transfer does, which has given an event behind the call to a thread that waits.
        cuda::Event event;
        ExpectOk(rank.events->Record(rank.comm_stream(), &event));
        std::thread waiting([&, event] {
          const cuda::CurrentContext current(rank.place.driver, rank.place.context);
          EXPECT_EQ(cuda::kSuccess, rank.place.driver->EventSynchronize(event.get()));
        });
        Pause();
        EXPECT_NE(CUDA_SUCCESS, cuStreamQuery(rank.comm));
        EXPECT_LT(AbortElsewhere(communicator.get()).count(), 1.0);
        const auto begin = Clock::now();
        waiting.join();
        EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.comm));
        EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 1.0);
        bool ready = true;
        ExpectError(communicator->Poll(&ready), "was aborted");
        EXPECT_FALSE(ready);
        ExpectError(communicator->Enqueue(SumOfInts(rank, data, data, kFew), rank.comm_stream()),
                    "was aborted");
        communicator->Abort();  // nothing is left to be aborted
      }
    });
  }
  pretend_gpu_set_policy("random");
}

TEST(NcclAbort, EndsTheMaking) {
  RunNcclRanks(1, [](const NcclRank& rank, const nccl::UniqueId& id) {
    std::unique_ptr<nccl::Communicator> communicator;
    ExpectOk(nccl::Communicator::Make(rank.place, id, 2, 0, &communicator));
    Pause();
    EXPECT_LT(AbortElsewhere(communicator.get()).count(), 1.0);
    bool ready = true;
    ExpectError(communicator->Poll(&ready), "was aborted");
  });
}

// Another thread is in the middle of calls: those that come later find out.
TEST(NcclAbort, MayComeWhileAnotherThreadCalls) {
  for (int trial = 0; trial < 10; ++trial) {
    RunNcclRanks(1, [trial](const NcclRank& rank, const nccl::UniqueId& id) {
      auto communicator = rank.Join(id);
      const DeviceMemory data(kFewBytes);
      data.Set(1, rank.compute);
      rank.Order(rank.compute, rank.comm);
      std::atomic<int> calls{0};
      std::thread aborting([&] {
        while (calls.load() < trial) std::this_thread::sleep_for(std::chrono::microseconds(50));
        communicator->Abort();
      });
      Status status;
      while (status.ok()) {
        status = communicator->Enqueue(SumOfInts(rank, data, data, kFew), rank.comm_stream());
        bool ready = false;
        while (status.ok() && !ready) status = communicator->Poll(&ready);
        if (status.ok()) ++calls;
        // The pretend NCCL takes no more calls of a host that runs far ahead of its stream, as it does while
        // the other thread does not get to run.
        if (calls.load() > trial) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      ExpectError(status, "was aborted");
      aborting.join();
      EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.comm));
    });
  }
}

}  // namespace
}  // namespace tf_smddp::testing
