// Tests that the rank that is the last to arrive in a step is known as such, on one host and on several.
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// Longer than it takes that all other ranks' arrival is known on all hosts.
constexpr std::chrono::milliseconds kLate{100};

CommunicatorStats WorldOf(Engine& engine) {
  EngineStats stats;
  const Status status = engine.Stats(/*reset=*/false, &stats);
  EXPECT_TRUE(status.ok()) << status.message();
  return stats.communicators.front();
}

// One step with two tensors, a small one and a large one. The ranks submit them in different orders; all but
// `late` do so before it does.
void RunStep(Engine& engine, int rank, int late, bool small_first, Meeting* meeting) {
  std::vector<float> small(5, 1.0f), large(30'000, 1.0f);
  const std::uint64_t ticket = DrawTicket(engine);
  std::vector<Request> requests;
  requests.push_back(InGroup(AllreduceIn(kWorld, &small), ticket, small_first ? 0 : 1, 2));
  requests.push_back(InGroup(AllreduceIn(kWorld, &large), ticket, small_first ? 1 : 0, 2));
  if (rank % 2 == 1) std::swap(requests[0], requests[1]);
  if (rank == late) {
    meeting->Await();
    std::this_thread::sleep_for(kLate);
  }
  std::vector<std::promise<Status>> ends(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].done = [&end = ends[i]](const Status& status) { end.set_value(status); };
    engine.Submit(std::move(requests[i]));
  }
  if (rank != late) meeting->Await();
  for (std::promise<Status>& end : ends) {
    const Status status = end.get_future().get();
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(LastToArrive, IsCountedInEachStep) {
  constexpr int kRanks = 4;
  const std::vector<int> late_ranks = {2, 2, 1, 2, 3, 2};
  const std::vector<std::uint64_t> expected = {0, 1, 4, 1};
  Meeting meeting(kRanks);
  RunRanks(kRanks, [&](int rank, Engine& engine) {
    for (std::size_t step = 0; step < late_ranks.size(); ++step) {
      RunStep(engine, rank, late_ranks[step], step % 2 == 0, &meeting);
      meeting.Await();
    }
    const CommunicatorStats world = WorldOf(engine);
    EXPECT_EQ(world.steps, late_ranks.size());
    EXPECT_EQ(world.last_steps, expected[static_cast<std::size_t>(rank)]) << "rank " << rank;
  });
}

TEST(LastToArrive, ARequestThatIsNoStepDoesNotCount) {
  RunRanks(2, [&](int, Engine& engine) {
    std::vector<float> data(30'000, 1.0f);
    ASSERT_TRUE(Await(engine, AllreduceIn(kWorld, &data)).ok());
    ASSERT_TRUE(Await(engine, InGroup(AllreduceIn(kWorld, &data), DrawTicket(engine), 0, 1)).ok());
    EXPECT_EQ(WorldOf(engine).last_steps, 0u);
  });
}

}  // namespace
}  // namespace tf_smddp::testing
