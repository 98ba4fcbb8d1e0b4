// A rank dies where the system refuses pidfds: the others notice within two seconds all the same.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/process.h"
#include "kernels/engine/watch/exit_cause.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/seccomp.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kNoticedWithin{2};

void WithoutPidfd(int, Config* config) {
  config->log_level = 4;
  Require(RefuseCalls({{SYS_pidfd_open, EPERM}}), "seccomp");
}

std::string KilledText(int rank, pid_t pid) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) +
         ") was killed by signal 9 (SIGKILL)";
}

// Expects each of `witnesses` to end soon with an error that has `part`.
void ExpectNoticed(LimitedRanks& ranks, const std::vector<int>& witnesses, const std::string& part) {
  const auto begin = Clock::now();
  for (const int witness : witnesses) {
    const std::string error = ranks.Await(witness).error;
    EXPECT_NE(error.find(part), std::string::npos) << "rank " << witness << " says: " << error;
    EXPECT_LT(Clock::now() - begin, kNoticedWithin) << "rank " << witness;
  }
}

TEST(DeathWithoutPidfd, IsNamedByItsSignalWhileItsParentWaits) {
  for (const int victim : {0, 1, 2}) {
    LimitedRanks ranks(3, WithoutPidfd, RunUntilFailure);
    ranks.AwaitInit();
    ::kill(ranks.pid(victim), SIGKILL);
    ExpectNoticed(ranks, {(victim + 1) % 3, (victim + 2) % 3}, KilledText(victim, ranks.pid(victim)));
    ranks.AwaitAll();
  }
}

TEST(DeathWithoutPidfd, IsNoticedWhenItsParentReapsAtOnce) {
  LimitedRanks ranks(2, WithoutPidfd, RunUntilFailure);
  ranks.AwaitInit();
  ::kill(ranks.pid(1), SIGKILL);
  ASSERT_EQ(::waitpid(ranks.pid(1), nullptr, 0), ranks.pid(1));
  // It depends on the moment whether the status could still be read.
  ExpectNoticed(ranks, {0}, "rank 1 (pid " + std::to_string(ranks.pid(1)) + ") ");
  ranks.AwaitAll();
}

TEST(DeathWithoutPidfd, OfManyNextToEachOtherIsNoticed) {
  LimitedRanks ranks(7, WithoutPidfd, RunUntilFailure);
  ranks.AwaitInit();
  // All are killed together, since a rank that lives longer could report the others' deaths.
  for (int rank = 1; rank < 6; ++rank) ::kill(ranks.pid(rank), SIGSTOP);
  for (int rank = 1; rank < 6; ++rank) ::kill(ranks.pid(rank), SIGKILL);
  ExpectNoticed(ranks, {0, 6}, "was killed by signal 9 (SIGKILL)");
  ranks.AwaitAll();
}

TEST(DeathWithoutPidfd, IsNoticedThoughTheRankBeforeIsStopped) {
  LimitedRanks ranks(4, WithoutPidfd, RunUntilFailure);
  ranks.AwaitInit();
  ::kill(ranks.pid(0), SIGSTOP);
  ::kill(ranks.pid(1), SIGKILL);
  ExpectNoticed(ranks, {2, 3}, KilledText(1, ranks.pid(1)));
  ::kill(ranks.pid(0), SIGCONT);
  ranks.AwaitAll();
}

sigset_t OnlyUsr1() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

// Ranks 1 and 2 leave and end; ranks 3 to 6 leave, and live on; rank 7 stays until it is killed; rank 0 goes
// on when it gets SIGUSR1.
Status LeaveBetween(Engine& engine) {
  Status status = RunSomeCollectives(engine);
  const int rank = engine.config().rank;
  if (!status.ok() || rank == 1 || rank == 2) return status;
  if (rank == 0) {
    const sigset_t wanted = OnlyUsr1();
    int got = 0;
    sigwait(&wanted, &got);
    return RunUntilFailure(engine);
  }
  if (rank != 7) status = engine.Shutdown();
  if (status.ok()) ::pause();
  return status;
}

TEST(DeathWithoutPidfd, RanksThatHaveLeftArePassedOver) {
  const auto limit = [](int rank, Config* config) {
    WithoutPidfd(rank, config);
    const sigset_t blocked = OnlyUsr1();
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  };
  LimitedRanks ranks(8, limit, LeaveBetween);
  for (const int rank : {1, 2}) EXPECT_EQ(ranks.Await(rank).error, "");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the ends of others must not trouble rank 0
  ::kill(ranks.pid(7), SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  ::kill(ranks.pid(0), SIGUSR1);
  ExpectNoticed(ranks, {0}, KilledText(7, ranks.pid(7)));
  for (const int rank : {3, 4, 5, 6}) ::kill(ranks.pid(rank), SIGKILL);
  for (const int rank : {3, 4, 5, 6}) EXPECT_EQ(ranks.Await(rank).error, "");
  ranks.AwaitAll();
}

TEST(DeathWithoutPidfd, ProcHidingTheRanksIsAnErrorOfInit) {
  const auto hide = [](int rank, Config* config) {
    WithoutPidfd(rank, config);
    // This acts like an empty /proc: no file in it can be opened.
    Require(RefuseCalls({{SYS_openat, ENOENT}, {SYS_open, ENOENT}}), "seccomp");
  };
  for (const RankEnd& end : RunLimited(2, hide)) {
    EXPECT_NE(end.error.find("seccomp profile"), std::string::npos) << end.error;
    EXPECT_NE(end.error.find("allow pidfd_open, or mount a /proc that shows rank 1 (pid "), std::string::npos)
        << end.error;
  }
}

TEST(Process, ANumberThatIsUsedAgainIsAnotherProcess) {
  ProcessStat stat;
  ASSERT_TRUE(ReadProcessStat(::getpid(), &stat));
  EXPECT_EQ(stat.parent, ::getppid());
  EXPECT_TRUE(ProcessRuns(::getpid(), stat.start_ticks));
  EXPECT_FALSE(ProcessRuns(::getpid(), stat.start_ticks + 1));
}

TEST(Process, AZombieDoesNotRunAndTellsHowItEnded) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(5);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT), 0);
  ProcessStat stat;
  ASSERT_TRUE(ReadProcessStat(child, &stat));
  EXPECT_FALSE(ProcessRuns(child, stat.start_ticks));
  EXPECT_EQ(WEXITSTATUS(stat.wait_status), 5);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(ReadProcessStat(child, &stat));
}

TEST(ExitCause, OfANumberThatIsUsedAgainIsNotTheOthers) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(5);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT), 0);
  ProcessStat stat;
  ASSERT_TRUE(ReadProcessStat(child, &stat));
  LocalPeer peer;
  peer.pid = child;
  peer.start_ticks = stat.start_ticks;
  EXPECT_EQ(DescribeExit(peer, std::chrono::milliseconds(0)),
            "exited with code 5 without calling shutdown()");
  peer.start_ticks += 1;
  EXPECT_EQ(DescribeExit(peer, std::chrono::milliseconds(0)),
            "died (its parent has taken its exit status; see that rank's own output)");
  ::waitpid(child, nullptr, 0);
}

TEST(Process, ANameMayHoldAnything) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) Z 1 (b");
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  ProcessStat stat;
  ASSERT_TRUE(ReadProcessStat(child, &stat));
  EXPECT_EQ(stat.parent, ::getpid());
  EXPECT_TRUE(ProcessRuns(child, stat.start_ticks));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tf_smddp::testing
