// Random schedules of mixed collectives over 2 to 5 ranks and two communicators: right, without deadlock, and
// without growth. A seed that fails is run again with SCHEDULE_SEED=<seed>.
#include "tests/cpp/testing/schedule.h"

#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/step.h"
#include "tests/cpp/testing/usage.h"

namespace tf_smddp::testing {
namespace {

constexpr std::uint32_t kFirstSeed = 1;

// `make test-all` runs many. Between hosts, messages are delayed, so a schedule takes longer there.
std::uint32_t NumSeeds() {
  const bool all = std::getenv("TF_SMDDP_TEST_ALL") != nullptr;
  if (RanksOnHosts(2).size() > 1) return kSanitized ? 20 : all ? 400 : 80;
  if (kThreadSanitizer) return all ? 150 : 60;
  if (kAddressSanitizer) return all ? 400 : 120;
  return all ? 2000 : 500;
}

// Runs a schedule on one rank.
class Player {
 public:
  Player(const Schedule& schedule, std::uint32_t seed, Engine& engine)
      : schedule_(schedule),
        engine_(engine),
        rank_(engine.config().rank),
        random_(seed * 31 + static_cast<std::uint32_t>(rank_)) {}

  void Play() {
    const Status status = engine_.CreateCommunicator(schedule_.second, &second_);
    ASSERT_TRUE(status.ok()) << status.message();
    const int in_second = MemberIn(schedule_.second, rank_);
    for (std::size_t index = 0; index < schedule_.steps.size(); ++index) {
      if (in_second >= 0 &&
          schedule_.leaves[static_cast<std::size_t>(in_second)] == static_cast<int>(index)) {
        const Status left = engine_.Leave(second_);
        ASSERT_TRUE(left.ok()) << left.message();
      }
      const std::vector<int> participants = schedule_.Participants(index);
      const int member = schedule_.steps[index].in_second ? in_second : rank_;
      if (MemberIn(participants, member) < 0) continue;
      ASSERT_NO_FATAL_FAILURE(PlayStep(index, participants, member));
    }
    // Those that have left follow its failed steps until all have.
    if (in_second < 0) return;
    if (schedule_.leaves[static_cast<std::size_t>(in_second)] < 0) {
      ASSERT_TRUE(engine_.Leave(second_).ok());
    }
    RankId last;
    const Status back = engine_.Return(second_, &last);
    ASSERT_TRUE(back.ok()) << back.message();
  }

 private:
  static int MemberIn(const std::vector<int>& ranks, int rank) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == rank) return static_cast<int>(i);
    }
    return -1;
  }

  void Delay() {
    const std::uint32_t dice = random_() % 16;
    if (dice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1000));
    if (dice < 4) std::this_thread::yield();
  }

  void PlayStep(std::size_t index, const std::vector<int>& participants, int member) {
    const ScheduledStep& scheduled = schedule_.steps[index];
    SCOPED_TRACE("rank " + std::to_string(rank_) + ", step " + std::to_string(index));
    if (scheduled.sabotage != Sabotage::kNone) {
      const Sabotage own = member == scheduled.saboteur ? scheduled.sabotage : Sabotage::kNone;
      const Status status = Try(index, scheduled, own, participants);
      ASSERT_FALSE(status.ok()) << "sabotage " << static_cast<int>(scheduled.sabotage) << " by member "
                                << scheduled.saboteur;
      if (scheduled.sabotage != Sabotage::kMismatch) {
        ASSERT_NE(status.message().find("seed's will"), std::string::npos) << status.message();
      }
    }
    const Status status = Try(index, scheduled, Sabotage::kNone, participants);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // Runs a step; returns how it ended. Outcomes are checked when it ended well.
  Status Try(std::size_t index, const ScheduledStep& scheduled, Sabotage sabotage,
             const std::vector<int>& participants) {
    const CommunicatorId id = scheduled.in_second ? second_ : kWorld;
    // First: it must outlive the step.
    std::vector<std::unique_ptr<Attempt>> attempts;
    Step step(engine_);
    const auto fail = [&] { step.Fail("the seed's will", {id}); };
    Delay();
    if (sabotage == Sabotage::kFailStep) {
      fail();
      return step.End();
    }
    std::uint64_t ticket = 0;
    if (scheduled.pairing == Pairing::kGroup && !step.DrawTicket(id, &ticket)) return step.End();
    const auto num_trials = static_cast<std::uint32_t>(scheduled.trials.size());
    // Whatever part is submitted by then; not all of it.
    const std::uint32_t stop = sabotage == Sabotage::kNone || sabotage == Sabotage::kMismatch
                                   ? num_trials
                                   : static_cast<std::uint32_t>(random_() % num_trials);
    for (std::uint32_t i = 0; i < stop; ++i) {
      Trial trial = scheduled.trials[i];
      if (sabotage == Sabotage::kMismatch && i == 0) trial = Spoil(trial);
      attempts.push_back(std::make_unique<Attempt>(engine_, id, trial));
      Request request = attempts.back()->MakeRequest(scheduled.pairing != Pairing::kGroup && i % 2 == 1);
      if (scheduled.pairing == Pairing::kGroup) request = InGroup(std::move(request), ticket, i, num_trials);
      if (scheduled.pairing == Pairing::kName) {
        request = Named(std::move(request), "trial " + std::to_string(index % 3) + "/" + std::to_string(i));
      }
      step.Submit(std::move(request));
      Delay();
    }
    if (sabotage == Sabotage::kCancelAll) engine_.CancelAll("the seed's will");
    if (sabotage == Sabotage::kEndGroup && scheduled.pairing == Pairing::kGroup) {
      step.Fail("the seed's will", {});  // the end of the group tells the others
    } else if (sabotage != Sabotage::kNone && sabotage != Sabotage::kMismatch) {
      fail();
    }
    const Status status = step.End();
    if (!status.ok()) return status;
    for (const auto& attempt : attempts) EXPECT_TRUE(attempt->Check(Status(), participants));
    return status;
  }

  // Returns a trial that differs from all other ranks'.
  static Trial Spoil(Trial trial) {
    trial.kind = CollectiveKind::kAllreduce;
    trial.dtype = DType::kFloat64;
    trial.op = ReduceOp::kSum;
    trial.prescale = trial.postscale = 1.0;
    trial.rows = 77;
    trial.row_count = 1;
    return trial;
  }

  const Schedule& schedule_;
  Engine& engine_;
  const int rank_;
  std::mt19937 random_;
  CommunicatorId second_ = kWorld;
};

void RunSeed(std::uint32_t seed) {
  const std::string advice = "; run it again with SCHEDULE_SEED=" + std::to_string(seed);
  const TimeLimit limit(std::chrono::seconds(60), advice);
  const Schedule schedule = MakeSchedule(seed);
  RunRanks(
      schedule.size,
      [&](int, Engine& engine) {
        SCOPED_TRACE(advice);  // a trace is of one thread
        Player(schedule, seed, engine).Play();
      },
      [&](int, Config* config) {
        config->bucket_cap_bytes = schedule.bucket_cap_bytes;
        config->chunk_bytes = schedule.chunk_bytes;
        config->small_bytes = schedule.small_bytes;
        config->table_slots = 256;
        config->arena_bytes = 8 << 20;
        config->stall_warning_ms = 100;  // the stall watch looks often; this log level hides what it says
      });
}

// Without what malloc keeps of freed memory, which differs by megabytes.
Usage ReadTrimmedUsage() {
  ::malloc_trim(0);
  return ReadUsage();
}

TEST(Schedules, AreRightAndNothingGrows) {
  if (const char* seed = std::getenv("SCHEDULE_SEED")) {
    RunSeed(static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10)));
    return;
  }
  // By default, each of malloc's arenas keeps some memory, and the ranks' threads use more and more arenas.
  if (!kSanitized) {
    ASSERT_EQ(::mallopt(M_ARENA_MAX, 1), 1);
  }
  Usage before;
  const std::uint32_t seeds = NumSeeds();
  for (std::uint32_t seed = kFirstSeed; seed < kFirstSeed + seeds && !HasFailure(); ++seed) {
    if (seed == kFirstSeed + seeds / 2) before = ReadTrimmedUsage();  // by then, caches are filled
    RunSeed(seed);
  }
  const Usage after = ReadTrimmedUsage();
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.shared_mappings, before.shared_mappings);
  // The memory of a job counts in shared_mappings. The test device keeps the most that it ever had.
  if (!kSanitized) {
    EXPECT_LT(after.private_bytes, before.private_bytes + (1 << 20));
  }
  std::printf("private memory: %lld KiB after a half, %lld KiB in the end\n",
              static_cast<long long>(before.private_bytes >> 10),
              static_cast<long long>(after.private_bytes >> 10));
}

}  // namespace
}  // namespace tf_smddp::testing
