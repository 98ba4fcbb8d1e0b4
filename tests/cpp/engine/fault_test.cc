// One process of a job dies, is stopped, exits or throws, in every phase of the job. The job ends soon with
// the expected errors, and leaves nothing behind.
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

enum class Fate {
  kKill,          // SIGKILL
  kStop,          // SIGSTOP, and SIGCONT a while later
  kStopThenKill,  // SIGSTOP, and SIGKILL a while later
  kExit,          // it exits with code 3, without a word
  kThrow,         // an exception that nobody catches
};
constexpr const char* kFates[] = {"Kill", "Stop", "StopThenKill", "Exit", "Throw"};

enum class Phase {
  kIdle,       // nobody has anything under way
  kWaiting,    // it waits for the others
  kWaitedFor,  // the others wait for it
  kLarge,      // large batches all the time
  kSmall,      // small requests all the time
  kBootstrap,  // somewhere on the way to the meeting of all ranks
  kShutdown,   // all are leaving
};
constexpr const char* kPhases[] = {"Idle", "Waiting", "WaitedFor", "Large", "Small", "Bootstrap", "Shutdown"};

constexpr milliseconds kPause{120};        // long enough for the others to come to rest
constexpr milliseconds kLongEnough{8000};  // for a victim to be reached by its fate

bool Survives(Fate fate) { return fate == Fate::kStop; }
bool ActsByItself(Fate fate) { return fate == Fate::kExit || fate == Fate::kThrow; }

// Called in the victim: carries out its fate after `delay`.
void Act(Fate fate, std::chrono::microseconds delay) {
  std::thread([fate, delay] {
    std::this_thread::sleep_for(delay);
    if (fate == Fate::kExit) ::_exit(3);
    throw std::runtime_error("on purpose");
  }).detach();
}

Status RunLarge(Engine& engine, int rounds) {
  std::vector<std::vector<float>> data(6, std::vector<float>(200000, 1.0f));
  for (int round = 0; round < rounds; ++round) {
    std::vector<Request> requests;
    for (auto& each : data) requests.push_back(AllreduceFloats(each, &each, ReduceOp::kMax));
    for (const Status& status : AwaitAll(engine, std::move(requests))) {
      if (!status.ok()) return status;
    }
  }
  return {};
}

Status RunSmall(Engine& engine, int rounds) {
  std::vector<float> data(20, 1.0f);
  for (int round = 0; round < rounds; ++round) {
    const Status status = Await(engine, AllreduceFloats(data, &data, ReduceOp::kMax));
    if (!status.ok()) return status;
  }
  return {};
}

// The work of every rank between init() and shutdown(). The victim of a fatal fate does not reach its end.
Status Live(Engine& engine, Phase phase, Fate fate, bool victim) {
  const bool dies = victim && !Survives(fate);
  const milliseconds pause = dies ? kLongEnough : kPause;
  switch (phase) {
    case Phase::kIdle:
      std::this_thread::sleep_for(victim ? pause : 2 * kPause);
      break;
    case Phase::kWaiting:
      if (!victim) std::this_thread::sleep_for((Survives(fate) ? 2 : 6) * kPause);
      break;
    case Phase::kWaitedFor:
      if (victim) std::this_thread::sleep_for(pause);
      break;
    case Phase::kLarge:
      return RunLarge(engine, Survives(fate) ? (kSanitized ? 6 : 60) : 100000);
    case Phase::kSmall:
      return RunSmall(engine, Survives(fate) ? (kSanitized ? 1000 : 3000) : 100000000);
    case Phase::kBootstrap:
      if (dies) std::this_thread::sleep_for(pause);  // it was through before its fate came
      break;
    case Phase::kShutdown:
      break;
  }
  return RunSmall(engine, 3);
}

// Sends the victim its signals, if its fate is of that kind.
void Strike(pid_t victim, Fate fate) {
  if (ActsByItself(fate)) return;
  if (fate == Fate::kKill) {
    ::kill(victim, SIGKILL);
    return;
  }
  ::kill(victim, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));
  ::kill(victim, fate == Fate::kStop ? SIGCONT : SIGKILL);
}

// Knows for how long the machine has kept threads from running that were ready to. On each core, a thread
// sleeps for a while, again and again.
class Witness {
 public:
  Witness() {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    Require(::sched_getaffinity(0, sizeof usable, &usable) == 0, "sched_getaffinity");
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (!CPU_ISSET(number, &usable)) continue;
      Core& core = cores_.emplace_back();
      core.thread = std::thread([this, &core, number] { Run(&core, number); });
    }
  }
  ~Witness() {
    over_ = true;
    for (Core& core : cores_) core.thread.join();
  }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Since it was made, on the core where that was longest.
  Clock::duration Lost() const {
    Clock::duration most{};
    for (const Core& core : cores_) {
      most = std::max(most, core.lost.load() + LateBy(core.due.load(), Clock::now()));
    }
    return most;
  }

 private:
  struct Core {
    std::atomic<Clock::time_point> due{Clock::now()};
    std::atomic<Clock::duration> lost{Clock::duration::zero()};
    std::thread thread;
  };

  // A quiet machine takes less to wake one up.
  static Clock::duration LateBy(Clock::time_point due, Clock::time_point now) {
    return now - due > milliseconds(1) ? now - due : Clock::duration::zero();
  }

  void Run(Core* core, int number) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(number, &own);
    Require(::sched_setaffinity(0, sizeof own, &own) == 0, "sched_setaffinity");
    while (!over_) {
      const Clock::time_point due = core->due = Clock::now() + milliseconds(10);
      std::this_thread::sleep_until(due);
      core->lost = core->lost.load() + LateBy(due, Clock::now());
    }
  }

  std::atomic<bool> over_{false};
  std::deque<Core> cores_;
};

// But for those of MPI's libraries: jobs of theirs may run beside this test.
std::vector<std::string> SharedMemoryFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.rfind("mpich_shm_", 0) != 0 && name.rfind("vader_segment.", 0) != 0) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Wanted(Fate fate, int victim, pid_t pid) {
  const std::string who = "rank " + std::to_string(victim) + " (pid " + std::to_string(pid) + ") ";
  if (fate == Fate::kExit) return who + "exited with code 3";
  return who + "was killed by signal " + std::to_string(fate == Fate::kThrow ? SIGABRT : SIGKILL);
}

void RunFault(int size, int victim, Phase phase, Fate fate, unsigned seed) {
  SCOPED_TRACE(std::string(kPhases[static_cast<int>(phase)]) + ", " + kFates[static_cast<int>(fate)] +
               ", rank " + std::to_string(victim) + " of " + std::to_string(size) + ", seed " +
               std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> files = SharedMemoryFiles();
  const std::chrono::microseconds delay(random() % (phase == Phase::kShutdown    ? 2000
                                                    : phase == Phase::kBootstrap ? 4000
                                                                                 : 15000));
  // The delay after which the victim acts on itself. Phases that are states last for kPause, and the victim
  // acts in the middle of them.
  const bool state = phase == Phase::kIdle || phase == Phase::kWaiting || phase == Phase::kWaitedFor;
  const std::chrono::microseconds rest = state ? std::chrono::microseconds(kPause / 2) : delay;
  LimitedRanks ranks(
      size,
      [&](int rank, Config* config) {
        const rlimit no_core = {0, 0};
        Require(::setrlimit(RLIMIT_CORE, &no_core) == 0, "setrlimit");
        config->log_level = 4;
        const bool ends_by_time = phase == Phase::kBootstrap && !Survives(fate);
        config->bootstrap_timeout_seconds = ends_by_time ? (kSanitized ? 3 : 1) : 30;
        if (rank == victim && phase == Phase::kBootstrap && ActsByItself(fate)) Act(fate, delay);
      },
      [&](Engine& engine) {
        const bool is_victim = engine.config().rank == victim;
        Status status = RunSmall(engine, 1);
        if (is_victim && phase != Phase::kBootstrap && ActsByItself(fate)) Act(fate, rest);
        if (status.ok()) status = Live(engine, phase, fate, is_victim);
        return status;
      });
  const Witness witness;
  if (phase != Phase::kBootstrap) ranks.AwaitInit();
  std::this_thread::sleep_for(rest);
  Strike(ranks.pid(victim), fate);
  const auto begin = Clock::now();
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim && !Survives(fate)) continue;
    const std::string error = ranks.Await(rank).error;
    const auto took = Clock::now() - begin;
    // A rank that never comes to the meeting is waited for as long as the settings say. How long thousands of
    // requests take after a stop depends on the machine's other work; the alarm ends them.
    const milliseconds limit((phase == Phase::kBootstrap ? 1500 : 2000) * (kSanitized ? 3 : 1));
    if (Survives(fate)) {
      EXPECT_EQ(error, "") << "rank " << rank;
      continue;
    }
    EXPECT_LT(took, limit + witness.Lost()) << "rank " << rank;
    if (phase == Phase::kBootstrap) {
      EXPECT_NE(error, "") << "rank " << rank;
    } else if (phase != Phase::kShutdown || !error.empty()) {  // it may have left in good order before
      EXPECT_NE(error.find(Wanted(fate, victim, ranks.pid(victim))), std::string::npos)
          << "rank " << rank << " says: " << error;
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(ranks.pid(rank), &status, 0), ranks.pid(rank));
    if (rank != victim || Survives(fate)) {
      EXPECT_EQ(status, 0) << "rank " << rank;
    }
  }
  EXPECT_EQ(SharedMemoryFiles(), files);
  if (phase == Phase::kBootstrap && victim == 0) {
    std::filesystem::remove_all(ranks.directory());  // a launcher's task when rank 0 dies early
  }
  EXPECT_FALSE(std::filesystem::exists(ranks.directory())) << "the rendezvous directory is still there";
}

class Fault : public ::testing::TestWithParam<std::tuple<Phase, Fate>> {};

TEST_P(Fault, EndsAsWritten) {
  const auto [phase, fate] = GetParam();
  const auto seed = static_cast<unsigned>(phase) * 16 + static_cast<unsigned>(fate);
  RunFault(3, 1, phase, fate, seed + 1000);
  if (kSanitized) return;  // ranks end slowly under them: one fault of each kind is enough
  RunFault(2, 0, phase, fate, seed);
  // A passage has many moments.
  const bool passage = phase == Phase::kBootstrap || phase == Phase::kShutdown;
  for (unsigned more = 0; passage && more < 3; ++more) {
    RunFault(3, static_cast<int>(more), phase, fate, seed + 2000 + more);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fault,
                         ::testing::Combine(::testing::Values(Phase::kIdle, Phase::kWaiting,
                                                              Phase::kWaitedFor, Phase::kLarge, Phase::kSmall,
                                                              Phase::kBootstrap, Phase::kShutdown),
                                            ::testing::Values(Fate::kKill, Fate::kStop, Fate::kStopThenKill,
                                                              Fate::kExit, Fate::kThrow)),
                         [](const auto& info) {
                           return std::string(kPhases[static_cast<int>(std::get<0>(info.param))]) +
                                  kFates[static_cast<int>(std::get<1>(info.param))];
                         });

}  // namespace
}  // namespace tf_smddp::testing
