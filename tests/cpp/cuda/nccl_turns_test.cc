// Turns alone: ranks as threads, each with a thread for each of several communicators, which make no calls.
#include "kernels/collectives/backends/nccl/nccl_turns.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_transfer.h"
#include "kernels/collectives/collective.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"

namespace tf_smddp::testing {
namespace {

// The host's shared memory.
struct Host {
  static constexpr std::size_t kLines = 3;
  nccl::Meeting meetings[kLines];
  std::atomic<std::uint64_t> counter;
  std::array<std::atomic<int>, kLines> made;  // batches, by all ranks together
};

// A rank's row of lines. All are there before the first turn is drawn, as members of a communicator are
// before its first batch.
struct Row {
  Row(Host* host, int rank) : compute(rank), turns(&host->counter) {
    for (nccl::Meeting& meeting : host->meetings) {
      lines.push_back(std::make_unique<nccl::Turns::Line>(&turns, &meeting));
      streams.emplace_back();
      ExpectOk(compute.device->NewStream("turns", &streams.back()));
    }
  }

  // Makes batches of one line, each when all ranks have made the one before.
  void Make(Host* host, std::size_t number, int num_ranks, int batches) {
    for (int batch = 0; batch < batches; ++batch) {
      while (host->made[number].load() < batch * num_ranks) std::this_thread::yield();
      for (bool come = false;;) {
        ExpectOk(lines[number]->Come(streams[number].get(), &come));
        if (come) break;
        std::this_thread::yield();
      }
      {
        std::lock_guard<std::mutex> lock(mu);
        order.push_back(number);
      }
      lines[number]->Made();
      host->made[number].fetch_add(1);
    }
  }

  Compute compute;
  nccl::Turns turns;
  std::vector<std::unique_ptr<cuda::OwnStream>> streams;
  std::vector<std::unique_ptr<nccl::Turns::Line>> lines;
  std::mutex mu;
  std::vector<std::size_t> order;  // whose batches were made; guarded by mu
};

TEST(NcclTurns, AreTakenInOneOrderByAllRanks) {
  pretend_gpu_set_policy("prompt");
  constexpr int kRanks = 2, kBatches = 2000;
  const auto host = std::make_unique<Host>();
  Row first(host.get(), 0), second(host.get(), 1);
  std::vector<std::thread> threads;
  for (Row* const row : {&first, &second}) {
    for (std::size_t number = 0; number < Host::kLines; ++number) {
      threads.emplace_back([&, row, number] { row->Make(host.get(), number, kRanks, kBatches); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first.order.size(), Host::kLines * kBatches);
  EXPECT_TRUE(first.order == second.order);
  EXPECT_EQ(host->counter.load(), Host::kLines * kBatches);
  pretend_gpu_set_policy("random");
}

TEST(NcclTurns, AreDrawnOnceForEachBatch) {
  const auto meeting = std::make_unique<nccl::Meeting>();
  std::atomic<std::uint64_t> counter{7};
  std::uint64_t turn = 0;
  EXPECT_FALSE(meeting->MayHaveBefore(/*turn=*/100, /*made=*/0));
  EXPECT_TRUE(meeting->BeginToDraw(/*batch=*/0));
  EXPECT_FALSE(meeting->BeginToDraw(0));  // another member
  EXPECT_FALSE(meeting->TurnOf(0, &turn));
  EXPECT_TRUE(meeting->MayHaveBefore(1, 0));
  meeting->Draw(&counter);
  EXPECT_FALSE(meeting->BeginToDraw(0));
  EXPECT_TRUE(meeting->TurnOf(0, &turn));
  EXPECT_EQ(turn, 7u);
  EXPECT_EQ(counter.load(), 8u);
  EXPECT_TRUE(meeting->MayHaveBefore(8, 0));
  EXPECT_FALSE(meeting->MayHaveBefore(8, 1));  // its calls have been made
  EXPECT_FALSE(meeting->MayHaveBefore(6, 0));  // it comes later
  meeting->Renew();
  EXPECT_FALSE(meeting->MayHaveBefore(8, 0));
  EXPECT_TRUE(meeting->BeginToDraw(0));
}

// While one rank draws, and is not scheduled, no other takes a turn: it might be a higher one.
TEST(NcclTurns, AMeetingThatIsMarkedHoldsUpTheOthers) {
  Compute compute(0);
  std::unique_ptr<cuda::OwnStream> stream;
  ExpectOk(compute.device->NewStream("turns", &stream));
  const auto host = std::make_unique<Host>();
  nccl::Turns turns(&host->counter);
  nccl::Turns::Line line(&turns, &host->meetings[0]), marked(&turns, &host->meetings[1]);
  EXPECT_TRUE(host->meetings[1].BeginToDraw(0));
  bool come = true;
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_FALSE(come);
  host->meetings[1].Draw(&host->counter);
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_TRUE(come);  // the other one has a higher turn
  ExpectOk(marked.Come(stream.get(), &come));
  EXPECT_FALSE(come);  // and waits for the calls of this one
  line.Skip();
  ExpectOk(marked.Come(stream.get(), &come));
  EXPECT_TRUE(come);
  host->meetings[0].Renew();
  line.Restart();
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_FALSE(come);  // in the next incarnation it draws again
  marked.Made();
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_TRUE(come);
}

// A transfer of one rank, of which each batch is a sum of one tensor.
struct OneRank {
  OneRank(nccl::Turns* turns, nccl::Meeting* meeting)
      : transfer("", meeting, turns, MemberId(0), 1,
                 {[](const std::string& text) { ADD_FAILURE() << text; }, [] { return Status(); },
                  [](const std::string& text) { ADD_FAILURE() << text; }}) {
    request.call.operation.kind = CollectiveKind::kAllreduce;
    request.call.operation.dtype = DType::kFloat32;
    request.call.num_ranks = 1;
    request.call.num_rows = request.call.row_count = 1;
    request.self = ParticipantId(0);
    request.way = ResolvedRequest::Way::kNccl;
    request.inputs = {data.Address()};
    request.outputs = {data.Address()};
    request.device_input = &input;
    request.device_output = &output;
  }

  void Plan() {
    compute.Mark();
    EXPECT_EQ(transfer.Plan({&request}, nullptr), 1u);
  }

  // Whether the batch gets anywhere in this time.
  bool Moves(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      if (transfer.Step().moved) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }

  Compute compute;
  Floats data{&compute, 1};
  const InputBuffer input = data.Input();
  const Buffer output = data.Output();
  ResolvedRequest request;
  nccl::NcclTransfer transfer;
};

// A batch that has come, and whose step then fails, holds nobody up; and the next one does not take its turn.
TEST(NcclTurns, EndWithTheStep) {
  constexpr std::chrono::milliseconds kMoment{200}, kLimit{10000};
  pretend_gpu_set_policy("prompt");
  const auto host = std::make_unique<Host>();
  nccl::Turns turns(&host->counter);
  OneRank rank(&turns, &host->meetings[0]);
  std::unique_ptr<cuda::OwnStream> stream;
  ExpectOk(rank.compute.device->NewStream("turns", &stream));
  nccl::Turns::Line other(&turns, &host->meetings[1]);
  bool come = true;

  rank.Plan();
  EXPECT_TRUE(rank.Moves(kLimit));  // it has come, and makes its communicator
  ExpectOk(other.Come(stream.get(), &come));
  EXPECT_FALSE(come);
  rank.transfer.Abandon(nullptr);
  ExpectOk(other.Come(stream.get(), &come));
  EXPECT_TRUE(come);

  host->meetings[0].Renew();
  rank.transfer.Reset();
  rank.Plan();
  EXPECT_FALSE(rank.Moves(kMoment));  // the other one has made no calls
  other.Made();
  while (!rank.transfer.done()) ASSERT_TRUE(rank.Moves(kLimit));
  rank.transfer.Complete();
  ExpectOk(rank.compute.AwaitWritten());
  pretend_gpu_set_policy("random");
}

}  // namespace
}  // namespace tf_smddp::testing
