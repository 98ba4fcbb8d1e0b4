// Two ranks as processes in a system that refuses something: they work, with at most one line in the log that
// says what is missing, or init() fails on all of them with a sentence that says what to change.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/job/environment.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/seccomp.h"

namespace tf_smddp::testing {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kAllRanks = -1;

Limit Refuse(const std::vector<RefusedCall>& calls, int on_rank = kAllRanks) {
  return [=](int rank, Config* config) {
    config->bootstrap_timeout_seconds = 5;
    if (on_rank == kAllRanks || on_rank == rank) Require(RefuseCalls(calls), "seccomp");
  };
}

// Lowers the soft limit.
void SetLimit(decltype(RLIMIT_AS) resource, std::uint64_t value) {
  rlimit limit;
  Require(::getrlimit(resource, &limit) == 0, "getrlimit");
  limit.rlim_cur = value;
  Require(::setrlimit(resource, &limit) == 0, "setrlimit");
}

void ExpectWorks(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "") << end.log;
}

void ExpectQuiet(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) EXPECT_EQ(end.log, "");
}

// The whole job has written exactly one line to the log, on rank 0.
void ExpectOneLine(std::vector<RankEnd> ends, const std::string& part) {
  const std::string log = std::exchange(ends[0].log, "");
  EXPECT_NE(log.find(part), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  ExpectQuiet(ends);
}

void ExpectFailsWith(const std::vector<RankEnd>& ends, const std::vector<std::string>& parts) {
  for (const RankEnd& end : ends) {
    for (const std::string& part : parts) {
      EXPECT_NE(end.error.find(part), std::string::npos) << "'" << end.error << "' has no '" << part << "'";
    }
  }
}

TEST(RefusedCalls, CallsThatAreNotNeededMayBeRefused) {
  for (const int error : {EPERM, ENOSYS}) {
    std::vector<RefusedCall> calls;
    for (const long call : {SYS_epoll_create1, SYS_eventfd2, SYS_inotify_init1, SYS_io_uring_setup,
                            SYS_process_vm_readv, SYS_mlock, SYS_mbind, SYS_madvise, SYS_ptrace, SYS_kill}) {
      calls.push_back({call, error});
    }
    if (!kSanitized) calls.push_back({SYS_sched_getaffinity, error});  // the sanitizers need it themselves
    const std::vector<RankEnd> ends = RunLimited(2, Refuse(calls));
    ExpectWorks(ends);
    ExpectQuiet(ends);
  }
}

TEST(RefusedCalls, WithoutPidfdItWorksAndRankZeroSaysSo) {
  for (const int error : {EPERM, ENOSYS}) {
    const std::vector<RankEnd> ends = RunLimited(3, Refuse({{SYS_pidfd_open, error}}));
    ExpectWorks(ends);
    ExpectOneLine(ends,
                  "[tf_smddp rank 0 warning] pidfd_open is refused: a rank's death is noticed by a look");
  }
}

TEST(RefusedCalls, WithoutFallocateItWorksAndSaysSo) {
  const std::vector<RankEnd> ends = RunLimited(2, Refuse({{SYS_fallocate, EPERM}}));
  ExpectWorks(ends);
  ExpectOneLine(ends, "fallocate is refused: memory that is no longer used stays");
}

TEST(RefusedCalls, WithoutMemfdAllRanksSayWhatToAllow) {
  for (const int error : {EPERM, ENOSYS}) {
    ExpectFailsWith(RunLimited(2, Refuse({{SYS_memfd_create, error}})),
                    {"cannot create shared memory: memfd_create failed", "seccomp", "allow memfd_create"});
  }
}

TEST(RefusedCalls, WithoutMemfdOnOneRankAllRanksAreTold) {
  for (const int refused : {0, 1, 2}) {
    const std::vector<RankEnd> ends = RunLimited(3, Refuse({{SYS_memfd_create, EPERM}}, refused));
    ExpectFailsWith(ends, {"allow memfd_create"});
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == refused) continue;
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)].error.find("rank " + std::to_string(refused) +
                                                                " failed during init(): "),
                0u)
          << ends[static_cast<std::size_t>(rank)].error;
    }
  }
}

TEST(RefusedCalls, ARankThatComesLateIsToldToo) {
  for (const int refused : {0, 1}) {
    const std::vector<RankEnd> ends = RunLimited(3, [&](int rank, Config* config) {
      if (rank == 2) ::usleep(500000);
      Refuse({{SYS_memfd_create, EPERM}}, refused)(rank, config);
    });
    ExpectFailsWith(ends, {"allow memfd_create"});
  }
}

TEST(RefusedCalls, AMemfdNeedsTheFlagOnSomeSystemsAndMustNotHaveItOnOld) {
  constexpr std::uint32_t kNoExecSeal = 8;
  const RefusedCall strict = {SYS_memfd_create, EACCES, 1, kNoExecSeal, 0};         // vm.memfd_noexec=2
  const RefusedCall old = {SYS_memfd_create, EINVAL, 1, kNoExecSeal, kNoExecSeal};  // before Linux 6.3
  for (const RefusedCall& system : {strict, old}) {
    const std::vector<RankEnd> ends = RunLimited(2, Refuse({system}));
    ExpectWorks(ends);
    ExpectQuiet(ends);
  }
}

TEST(RefusedCalls, WithoutUnixSocketsAllRanksSayWhatToAllow) {
  constexpr std::uint32_t kUnix = 1;
  for (const int error : {EPERM, EAFNOSUPPORT}) {
    ExpectFailsWith(RunLimited(2, Refuse({{SYS_socket, error, 0, ~0u, kUnix}})),
                    {"socket failed: ", "allow socket"});
  }
}

TEST(RefusedCalls, WithoutThreadsAllRanksSayWhatToRaise) {
  const std::vector<RefusedCall> no_more = {{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}};
  ExpectFailsWith(RunLimited(2, Refuse(no_more)), {"a thread could not be started", "ulimit -u"});
  const std::vector<RankEnd> ends = RunLimited(2, Refuse(no_more, 1));
  ExpectFailsWith(ends, {"a thread could not be started", "ulimit -u"});
  EXPECT_EQ(ends[0].error.find("rank 1 failed during init(): "), 0u) << ends[0].error;
  ExpectFailsWith(RunLimited(2, Refuse({{SYS_clone3, EPERM}, {SYS_clone, EPERM}})), {"allow clone3"});
}

// Refuses rank 1 its `n`-th thread since before init().
Limit RefuseThread(int n) {
  return [n](int rank, Config* config) {
    config->bootstrap_timeout_seconds = 5;
    if (rank == 1) Require(RefuseNthCall({{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}}, n), "seccomp");
  };
}

// init() first starts and ends as many threads as it needs, four. Then other processes may use up the limit.
TEST(RefusedCalls, AnyThreadOfInitThatIsRefusedIsAnErrorOnAllRanks) {
  for (int n = 1; n <= 8; ++n) {
    SCOPED_TRACE("thread " + std::to_string(n));
    ExpectFailsWith(RunLimited(2, RefuseThread(n)), {"a thread could not be started", "ulimit -u"});
  }
  ExpectWorks(RunLimited(2, RefuseThread(9)));
}

// init() needs five, and the wire of tests one more. That of this rank may not run yet, so the other host
// only sees that the connection is lost.
TEST(RefusedCalls, AnyThreadOfInitBetweenHostsThatIsRefusedIsAnError) {
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", "2", 1), 0);
  for (int n = 5; n <= 11; ++n) {
    SCOPED_TRACE("thread " + std::to_string(n));
    const std::vector<RankEnd> ends = RunLimited(2, RefuseThread(n));
    EXPECT_NE(ends[0].error, "");
    EXPECT_NE(ends[1].error.find("a thread could not be started"), std::string::npos) << ends[1].error;
  }
  ExpectWorks(RunLimited(2, RefuseThread(12)));
  ASSERT_EQ(::unsetenv("TF_SMDDP_TEST_HOSTS"), 0);
}

// The others get an error that says why, and the job goes on.
TEST(RefusedCalls, ARankThatCannotJoinAProcessSetSaysSoToAll) {
  const std::vector<RankEnd> ends = RunLimited(
      3, [](int, Config*) {},
      [](Engine& engine) -> Status {
        if (engine.config().rank == 1) {
          Require(RefuseCalls({{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}}), "seccomp");
        }
        CommunicatorId id = kWorld;
        const Status status = engine.CreateCommunicator({1, 2}, &id);
        if (status.message().find("rank 1 cannot join a process set: a thread could not be started") ==
            std::string::npos) {
          return Internal("not what was expected: " + status.message());
        }
        return RunSomeCollectives(engine);
      });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
}

// --- limits of resources ---

// The descriptors that this process can have besides those that are open.
void LeaveDescriptors(int number) {
  rlim_t limit = 0;
  for (int free = 0; free < number; ++limit) {
    if (::fcntl(static_cast<int>(limit), F_GETFD) < 0) ++free;
  }
  SetLimit(RLIMIT_NOFILE, limit);
}

TEST(Descriptors, AsManyAsItSaysAreEnough) {
  for (const int size : {2, 7}) {
    const std::vector<RankEnd> ends =
        RunLimited(size, [&](int, Config*) { LeaveDescriptors(DescriptorsNeeded(size)); });
    ExpectWorks(ends);
    ExpectQuiet(ends);
  }
}

TEST(Descriptors, TooFewAreAnErrorOnAllRanksWithTheNumberNeeded) {
  for (const int limited : {kAllRanks, 0, 1}) {
    const std::vector<RankEnd> ends = RunLimited(2, [&](int rank, Config*) {
      if (limited == kAllRanks || limited == rank) LeaveDescriptors(DescriptorsNeeded(2) - 1);
    });
    const std::string needed = std::to_string(DescriptorsNeeded(2));
    const std::string left = std::to_string(DescriptorsNeeded(2) - 1);
    ExpectFailsWith(ends, {"init() of 2 ranks needs " + needed + " file descriptors",
                           "leaves " + left + "; raise it to ", " or more (ulimit -n)"});
  }
}

TEST(Descriptors, AFewAreEnoughToTellTheOthers) {
  const std::vector<RankEnd> ends = RunLimited(8, [](int, Config*) { LeaveDescriptors(4); });
  ExpectFailsWith(ends, {"init() of 8 ranks needs", "leaves 4;"});
}

TEST(FileSize, ADefaultArenaIsMadeSmaller) {
  const std::vector<RankEnd> ends =
      RunLimited(2, [](int, Config* config) { SetLimit(RLIMIT_FSIZE, 12 * kMiB); });
  ExpectWorks(ends);
  ExpectOneLine(ends, "the arena has 12 MiB instead of 32 MiB because of the file size limit (ulimit -f)");
}

TEST(FileSize, AUsersSizeIsNotMadeSmaller) {
  const std::vector<RankEnd> ends = RunLimited(2, [](int, Config* config) {
    config->arena_bytes_given = true;
    SetLimit(RLIMIT_FSIZE, 12 * kMiB);
  });
  ExpectFailsWith(ends, {"an arena of 32 MiB is above this process's file size limit of 12 MiB",
                         "ulimit -f unlimited", "or lower SMDDP_ARENA_BYTES"});
}

TEST(FileSize, NextToNothingIsAnErrorOnAllRanksNotASignal) {
  for (const int limited : {kAllRanks, 0, 1}) {
    const std::vector<RankEnd> ends = RunLimited(2, [&](int rank, Config*) {
      if (limited == kAllRanks || limited == rank) SetLimit(RLIMIT_FSIZE, 4096);
    });
    ExpectFailsWith(ends, {"file size limit of 0 MiB", "raise it (ulimit -f unlimited)"});
  }
}

std::uint64_t AddressSpaceInUse() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void LeaveAddressSpace(std::uint64_t bytes) { SetLimit(RLIMIT_AS, AddressSpaceInUse() + bytes); }

// The threads take some of it too, and how much differs from run to run: up to 72 MiB each for stack and
// heap.
constexpr std::uint64_t kLeft = 500 * kMiB;
constexpr std::int64_t kTooLargeArena = 1 << 30;

TEST(AddressSpace, ADefaultArenaIsMadeSmaller) {
  const std::vector<RankEnd> ends = RunLimited(2, [](int, Config* config) {
    config->arena_bytes = kTooLargeArena;
    LeaveAddressSpace(kLeft);
  });
  ExpectWorks(ends);
  ExpectOneLine(ends, "MiB instead of 1024 MiB because of the address space limit (ulimit -v)");
}

TEST(AddressSpace, AUsersSizeIsNotMadeSmaller) {
  const std::vector<RankEnd> ends = RunLimited(2, [](int, Config* config) {
    config->arena_bytes = kTooLargeArena;
    config->arena_bytes_given = true;
    LeaveAddressSpace(kLeft);
  });
  ExpectFailsWith(
      ends, {"the shared memory of 2 ranks takes ", " MiB of address space, but this process's limit leaves ",
             "raise it (ulimit -v unlimited), or lower SMDDP_ARENA_BYTES"});
}

TEST(AddressSpace, OtherMappingsCount) {
  constexpr std::uint64_t kOther = std::uint64_t{1} << 50;
  const pid_t child = ::fork();
  if (child == 0) {
    SetLimit(RLIMIT_AS, kOther);
    Environment environment;
    const Status status = CheckEnvironment(RankConfig(0, 2, ""), kOther, 1, &environment);
    ::_exit(status.message().find("of address space, but this process's limit leaves") != std::string::npos
                ? 0
                : 1);
  }
  int wait_status = 0;
  ASSERT_EQ(::waitpid(child, &wait_status, 0), child);
  EXPECT_EQ(wait_status, 0);
}

TEST(AddressSpace, TooLittleIsAnErrorOnAllRanks) {
  for (const int limited : {kAllRanks, 0, 1}) {
    const std::vector<RankEnd> ends = RunLimited(2, [&](int rank, Config*) {
      if (limited == kAllRanks || limited == rank) LeaveAddressSpace(1 * kMiB);
    });
    ExpectFailsWith(ends, {"ulimit -v"});
  }
}

// --- where the memory lies ---

// Gives this process a /dev/shm that is too small for anything; returns false, and sets errno, if it must
// not.
bool ShrinkDevShm() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", "/dev/shm", "tmpfs", 0, "size=64k") == 0;
}

// Returns 0, or why ShrinkDevShm() fails in a process: an errno.
int ErrorOfShrinkDevShm() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ShrinkDevShm() ? 0 : errno);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// Runs collectives; an error names what of this process's memory or files lies in /dev/shm.
Status LookForDevShm(Engine& engine) {
  const Status status = RunSomeCollectives(engine);
  if (!status.ok()) return status;
  bool found_segments = false;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm") != std::string::npos) return Internal("mapped: " + line);
    found_segments = found_segments || line.find("memfd:smddp-") != std::string::npos;
  }
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the directory's own descriptor
    const std::string target = std::filesystem::read_symlink(file, gone).string();
    if (target.find("/dev/shm") != std::string::npos) return Internal("open: " + target);
  }
  return found_segments ? Status() : Internal("the shared memory is not where this test looks");
}

TEST(SharedMemory, NothingLiesInDevShm) {
  if (const int error = ErrorOfShrinkDevShm(); error != 0) {
    GTEST_SKIP() << "this process may not mount a /dev/shm of its own: " << std::strerror(error);
  }
  const std::vector<RankEnd> ends =
      RunLimited(2, [](int, Config*) { Require(ShrinkDevShm(), "mount /dev/shm"); }, LookForDevShm);
  ExpectWorks(ends);
  ExpectQuiet(ends);
}

}  // namespace
}  // namespace tf_smddp::testing
