// The end of the job, in a process where aborts of NCCL take 3 s (PRETEND_GPU_NCCL_ABORT_MS), and spoil what
// other ranks still read (PRETEND_GPU_NCCL_SPOIL), and where the driver has a lock
// (PRETEND_GPU_CONTEXT_LOCK).
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kSummed = 5000;

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Rank 2 does not come to the second sum, whose calls the others have made, nor to the third one.
TEST(NcclAbortOfTheJob, EachRankHasItsErrorBeforeNcclHasEnded) {
  Meeting meeting(3);
  const Tweak slow = [](int rank, Config* config) {
    if (rank == 2) config->test_transfer_delay_ms = 500;
  };
  RunRanks(
      3,
      [&](int rank, Engine& engine) {
        Compute compute(rank);
        const Floats data(&compute, kSummed), second(&compute, kSummed), third(&compute, kSummed);
        ExpectOk(UseGpus(engine, &compute, data));
        cuda::Order orders[2];
        for (cuda::Order& order : orders) compute.Mark(&order);
        meeting.Await();
        std::promise<Status> outcome;
        Request request = Allreduce(second, "second", &orders[0], &orders[0]);
        request.done = [&outcome](const Status& status) { outcome.set_value(status); };
        engine.Submit(std::move(request));
        SleepMs(100);
        meeting.Await();
        const auto begin = std::chrono::steady_clock::now();
        std::thread ends([&] {
          SleepMs(100);
          if (rank == 2) engine.Abort("the test ends the job");
        });
        // One of two callers drives the progress itself.
        if (rank < 2) {
          ExpectError(Await(engine, Allreduce(third, "third", &orders[1], &orders[1])), "the test ends");
        }
        ExpectError(outcome.get_future().get(), "the test ends the job");
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
        ends.join();
        for (const cuda::Order& order : orders) static_cast<void>(Compute::AwaitWritten(order));
      },
      slow, /*orderly=*/false);
}

// The first sum is complete, and rank 0 has come to it on its stream, when rank 1 ends the job. Rank 0's
// result is spoiled, and the calls end well there. Its progress thread knows nothing yet: it sleeps.
TEST(NcclAbortOfTheJob, AResultThatTheAbortOfAnotherRankSpoilsIsAnError) {
  Meeting meeting(2);
  const Tweak sleepy = [](int rank, Config* config) {
    if (rank == 0) config->test_transfer_delay_ms = 2000;
  };
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        Compute compute(rank);
        const Floats first(&compute, kSummed), second(&compute, kSummed);
        ExpectOk(UseGpus(engine, &compute, first));
        Hold hold(compute.stream());
        if (rank == 0) hold.LetGo();
        cuda::Order orders[2];
        for (cuda::Order& order : orders) compute.Mark(&order);
        ExpectOk(Await(engine, Allreduce(first, "first", &orders[0], &orders[0])));
        meeting.Await();
        std::promise<Status> outcome;
        Request request = Allreduce(second, "second", &orders[1], &orders[1]);
        request.done = [&outcome](const Status& status) { outcome.set_value(status); };
        engine.Submit(std::move(request));
        SleepMs(200);
        meeting.Await();
        const auto begin = std::chrono::steady_clock::now();
        if (rank == 1) engine.Abort("the test ends the job");
        if (rank == 0) {
          ExpectError(Compute::AwaitWritten(orders[0]), "the test ends the job");
          EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
        }
        ExpectError(outcome.get_future().get(), "the test ends the job");
        if (rank == 1) hold.LetGo();
        static_cast<void>(Compute::AwaitWritten(orders[1]));
        if (rank == 1) static_cast<void>(Compute::AwaitWritten(orders[0]));
      },
      sleepy, /*orderly=*/false);
}

// Rank 1 does not make its call. A thread frees memory, with the driver's lock; another one is in a call of
// NCCL, which waits for the lock.
TEST(NcclAbortOfAll, ACallThatDoesNotReturnIsNotWaitedForLong) {
  Meeting meeting(2);
  RunNcclRanks(2, [&](const NcclRank& rank, const nccl::UniqueId& id) {
    NcclRank its = rank;
    its.place.communicators = std::make_shared<nccl::Communicators>(std::chrono::milliseconds(0));
    const std::unique_ptr<nccl::Communicator> communicator = its.Join(id);
    const DeviceMemory data(kSummed * sizeof(int));
    const std::vector<nccl::NcclCall> calls = SumOfInts(its, data, data, kSummed);
    if (rank.rank == 0) {
      bool ready = false;
      ExpectOk(communicator->Enqueue(calls, its.comm_stream()));
      while (!ready) ExpectOk(communicator->Poll(&ready));
      const Compute compute(0);
      const auto begin = std::chrono::steady_clock::now();
      {
        const Freeing freeing(compute);
        std::thread enqueues(
            [&] { ExpectError(communicator->Enqueue(calls, its.comm_stream()), "was aborted"); });
        SleepMs(100);
        its.place.communicators->AbortAll();
        its.place.communicators->AbortAll();
        enqueues.join();
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
    }
    meeting.Await();
  });
}

// As in nccl_stuck_test.cc, but no rank dies: the watchers see that another rank has ended the job.
TEST(NcclAbortOfTheJob, TheLockOfTheDriverDoesNotHoldItUp) {
  Meeting meeting(3);
  RunRanks(
      3,
      [&](int rank, Engine& engine) {
        Compute compute(rank);
        const Floats first(&compute, kSummed), second(&compute, kSummed);
        ExpectOk(UseGpus(engine, &compute, first));
        Hold hold(compute.stream());
        if (rank < 2) hold.LetGo();
        cuda::Order orders[2];
        for (cuda::Order& order : orders) compute.Mark(&order);
        ExpectOk(Await(engine, Allreduce(first, "first", &orders[0], &orders[0])));
        std::promise<Status> outcome;
        Request request = Allreduce(second, "second", &orders[1], &orders[1]);
        request.done = [&outcome](const Status& status) { outcome.set_value(status); };
        std::unique_ptr<Freeing> freeing;
        if (rank < 2) freeing = std::make_unique<Freeing>(compute);
        engine.Submit(std::move(request));
        SleepMs(200);
        meeting.Await();
        const auto begin = std::chrono::steady_clock::now();
        if (rank == 2) engine.Abort("the test ends the job");
        ExpectError(outcome.get_future().get(), "the test ends the job");
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
        if (rank == 2) hold.LetGo();
        const Status written = Compute::AwaitWritten(orders[0]);
        if (rank < 2) ExpectError(written, "the test ends the job");
        static_cast<void>(Compute::AwaitWritten(orders[1]));
      },
      {}, /*orderly=*/false);
}

}  // namespace
}  // namespace tf_smddp::testing
