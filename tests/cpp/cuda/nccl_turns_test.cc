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
  nccl::Meeting meeting;
  TurnRecord records[kLines];
  std::atomic<std::uint64_t> counter;
  std::array<std::atomic<int>, kLines> made;  // batches, by all ranks together
};

// A rank's row of lines. All are there before the first turn is drawn, as members of a communicator are
// before its first batch.
struct Row {
  Row(Host* host, int rank) : compute(rank), turns(&host->counter) {
    for (TurnRecord& record : host->records) {
      lines.push_back(std::make_unique<nccl::Turns::Line>(&turns, &record));
      streams.emplace_back();
      ExpectOk(compute.device->NewStream("turns", &streams.back()));
    }
  }

  // Makes batches of one line, each when all ranks have made the one before.
  void Make(Host* host, std::size_t number, int num_ranks, int batches) {
    for (int batch = 0; batch < batches; ++batch) {
      while (host->made[number].load() < batch * num_ranks) std::this_thread::yield();
      lines[number]->Complete();  // the batch before
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
  const auto record = std::make_unique<TurnRecord>();
  std::atomic<std::uint64_t> counter{7};
  std::uint64_t turn = 0;
  EXPECT_FALSE(record->MayHaveBefore(/*turn=*/100, /*made=*/0));
  EXPECT_TRUE(record->BeginToDraw(/*batch=*/0));
  EXPECT_FALSE(record->BeginToDraw(0));  // another member
  EXPECT_FALSE(record->TurnOf(0, &turn));
  EXPECT_TRUE(record->MayHaveBefore(1, 0));
  record->Draw(&counter);
  EXPECT_FALSE(record->BeginToDraw(0));
  EXPECT_TRUE(record->TurnOf(0, &turn));
  EXPECT_EQ(turn, 7u);
  EXPECT_EQ(counter.load(), 8u);
  EXPECT_TRUE(record->MayHaveBefore(8, 0));
  EXPECT_FALSE(record->MayHaveBefore(8, 1));  // its calls have been made
  EXPECT_FALSE(record->MayHaveBefore(6, 0));  // it comes later
  record->Renew();
  EXPECT_FALSE(record->MayHaveBefore(8, 0));
  EXPECT_TRUE(record->BeginToDraw(0));
}

// Where other hosts are ahead, several batches have turns; no more than there is room for.
TEST(NcclTurns, AreKeptUntilTheBatchesAreDone) {
  const auto record = std::make_unique<TurnRecord>();
  std::atomic<std::uint64_t> counter{0};
  constexpr std::uint64_t kRoom = TurnRecord::kRoom;
  for (std::uint64_t batch = 0; batch < kRoom; ++batch) {
    EXPECT_TRUE(record->HasRoomFor(batch));
    ASSERT_TRUE(record->BeginToDraw(batch));
    record->Draw(&counter);
    counter += 10;
  }
  EXPECT_FALSE(record->HasRoomFor(kRoom));
  std::uint64_t turn = 0;
  for (const std::uint64_t batch : {std::uint64_t{0}, std::uint64_t{5}, kRoom - 1}) {
    EXPECT_TRUE(record->TurnOf(batch, &turn));
    EXPECT_EQ(turn, 11 * batch);
    EXPECT_FALSE(record->MayHaveBefore(turn, batch));
    EXPECT_TRUE(record->MayHaveBefore(turn + 1, batch));
  }
  record->CountDone(2);
  record->CountDone(1);
  EXPECT_TRUE(record->HasRoomFor(kRoom + 1));
  EXPECT_FALSE(record->HasRoomFor(kRoom + 2));
  ASSERT_TRUE(record->BeginToDraw(kRoom));
  record->Draw(&counter);
  EXPECT_TRUE(record->TurnOf(kRoom, &turn));
  EXPECT_EQ(turn, 11 * kRoom);
  EXPECT_TRUE(record->TurnOf(2, &turn));
  EXPECT_EQ(turn, 22u);
}

// While one rank draws, and is not scheduled, no other takes a turn: it might be a higher one.
TEST(NcclTurns, ARecordThatIsMarkedHoldsUpTheOthers) {
  Compute compute(0);
  std::unique_ptr<cuda::OwnStream> stream;
  ExpectOk(compute.device->NewStream("turns", &stream));
  const auto host = std::make_unique<Host>();
  nccl::Turns turns(&host->counter);
  nccl::Turns::Line line(&turns, &host->records[0]), marked(&turns, &host->records[1]);
  EXPECT_TRUE(host->records[1].BeginToDraw(0));
  bool come = true;
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_FALSE(come);
  host->records[1].Draw(&host->counter);
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_TRUE(come);  // the other one has a higher turn
  ExpectOk(marked.Come(stream.get(), &come));
  EXPECT_FALSE(come);  // and waits for the calls of this one
  line.Skip();
  ExpectOk(marked.Come(stream.get(), &come));
  EXPECT_TRUE(come);
  host->records[0].Renew();
  line.Restart();
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_FALSE(come);  // in the next incarnation it draws again
  marked.Made();
  ExpectOk(line.Come(stream.get(), &come));
  EXPECT_TRUE(come);
}

// A transfer of one rank, of which each batch is a sum of one tensor.
struct OneRank {
  OneRank(nccl::Turns* turns, Host* host) : transfer(View(host), &host->meeting, turns, nullptr) {
    request.call.operation.kind = CollectiveKind::kAllreduce;
    request.call.operation.dtype = DType::kFloat32;
    request.call.num_ranks = 1;
    request.call.num_rows = request.call.row_count = 1;
    request.self = ParticipantId(0);
    request.on_devices = true;
    request.inputs = {data.Address()};
    request.outputs = {data.Address()};
    request.device_input = &input;
    request.device_output = &output;
  }

  static CommunicatorView View(Host* host) {
    static const Config config;
    static const Logger logger(LogLevel::kWarning, /*rank=*/0);
    CommunicatorView view;
    view.config = &config;
    view.logger = &logger;
    view.ranks = view.members = {0};
    view.self = MemberId(0);
    view.turn_record = &host->records[0];
    view.fail_job = [](const std::string& text) { ADD_FAILURE() << text; };
    view.job_error = [] { return Status(); };
    view.wake = [] {};
    return view;
  }

  // Whether `done` says so within this time.
  template <typename Done>
  static bool Within(std::chrono::milliseconds limit, const Done& done) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }

  bool IsReady(std::chrono::milliseconds limit) {
    return Within(limit, [&] { return transfer.Prepare(request) == Transfer::Readiness::kReady; });
  }
  bool Moves(std::chrono::milliseconds limit) {
    return Within(limit, [&] { return transfer.Step().moved; });
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
  OneRank rank(&turns, host.get());
  std::unique_ptr<cuda::OwnStream> stream;
  ExpectOk(rank.compute.device->NewStream("turns", &stream));
  nccl::Turns::Line other(&turns, &host->records[1]);
  bool come = true;

  EXPECT_EQ(rank.transfer.Prepare(rank.request), Transfer::Readiness::kNotYet);  // it has come, and starts
  ExpectOk(other.Come(stream.get(), &come));
  EXPECT_FALSE(come);
  rank.transfer.Abandon(nullptr);
  ExpectOk(other.Come(stream.get(), &come));
  EXPECT_TRUE(come);

  host->records[0].Renew();
  rank.transfer.Reset();
  EXPECT_FALSE(rank.IsReady(kMoment));  // the other one has made no calls
  other.Made();
  EXPECT_TRUE(rank.IsReady(kLimit));
  rank.compute.Mark();
  EXPECT_EQ(rank.transfer.Plan({&rank.request}, nullptr), 1u);
  while (!rank.transfer.done()) ASSERT_TRUE(rank.Moves(kLimit));
  rank.transfer.Complete();
  ExpectOk(rank.compute.AwaitWritten());
  pretend_gpu_set_policy("random");
}

}  // namespace
}  // namespace tf_smddp::testing
