#include "kernels/memory/memory_limits.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// --- how large the arena is to be ---

ArenaRequirements Requirements(bool fixed, int ranks) {
  ArenaRequirements required;
  required.bytes = 64 * kMiB;
  required.fixed = fixed;
  required.least_bytes = kMiB;
  required.local_size = ranks;
  required.other_bytes = 10 * kMiB;
  return required;
}

struct Choice {
  Status status;
  std::uint64_t bytes = 0;
  std::string warning;
};

Choice Choose(const ArenaRequirements& required, const MemoryLimits& limits) {
  Choice choice;
  choice.status = ChooseArenaBytes(required, limits, &choice.bytes, &choice.warning);
  return choice;
}

MemoryLimits FileLimit(std::uint64_t bytes) { return {bytes, kNoLimit, kNoLimit}; }
MemoryLimits AddressLimit(std::uint64_t bytes) { return {kNoLimit, bytes, kNoLimit}; }
MemoryLimits GroupLimit(std::uint64_t bytes) { return {kNoLimit, kNoLimit, bytes}; }

TEST(ArenaBytes, WithoutLimitsTheArenaHasTheRequiredSize) {
  for (const bool fixed : {false, true}) {
    const Choice choice = Choose(Requirements(fixed, 8), {});
    EXPECT_TRUE(choice.status.ok());
    EXPECT_EQ(choice.bytes, 64 * kMiB);
    EXPECT_EQ(choice.warning, "");
  }
}

TEST(ArenaBytes, ALimitThatIsJustEnoughChangesNothing) {
  for (const MemoryLimits& limits :
       {FileLimit(64 * kMiB), AddressLimit((8 * 64 * 2 + 10) * kMiB), GroupLimit(8 * 64 * kMiB)}) {
    const Choice choice = Choose(Requirements(false, 8), limits);
    EXPECT_EQ(choice.bytes, 64 * kMiB);
    EXPECT_EQ(choice.warning, "");
  }
}

TEST(ArenaBytes, ADefaultIsLoweredToTheLimit) {
  Choice choice = Choose(Requirements(false, 8), FileLimit(64 * kMiB - 1));
  EXPECT_EQ(choice.bytes, 64 * kMiB - (64 << 10));
  EXPECT_TRUE(
      Contains(choice.warning, "64 MiB instead of 64 MiB because of the file size limit (ulimit -f)"));
  // Half of what is left for the arenas of all ranks.
  choice = Choose(Requirements(false, 8), AddressLimit((8 * 5 * 2 + 10) * kMiB));
  EXPECT_EQ(choice.bytes, 5 * kMiB);
  EXPECT_TRUE(
      Contains(choice.warning, "the arena has 5 MiB instead of 64 MiB because of the address space limit"));
  // The lower one counts.
  EXPECT_EQ(Choose(Requirements(false, 8), {3 * kMiB, (8 * 5 * 2 + 10) * kMiB, kNoLimit}).bytes, 3 * kMiB);
}

TEST(ArenaBytes, TheLeastIsTriedWhenItFits) {
  const Choice choice = Choose(Requirements(false, 8), AddressLimit((8 + 10) * kMiB));
  EXPECT_TRUE(choice.status.ok());
  EXPECT_EQ(choice.bytes, kMiB);
}

TEST(ArenaBytes, LessThanTheLeastIsAnErrorWithTheRemedy) {
  EXPECT_EQ(
      Choose(Requirements(false, 8), FileLimit(kMiB - 1)).status.message(),
      "an arena of 1 MiB is above this process's file size limit of 0 MiB; raise it (ulimit -f unlimited)");
  EXPECT_EQ(Choose(Requirements(false, 8), AddressLimit((8 + 10) * kMiB - 1)).status.message(),
            "the shared memory of 8 ranks takes 18 MiB of address space, but this process's limit leaves 17 "
            "MiB; raise "
            "it (ulimit -v unlimited)");
}

TEST(ArenaBytes, AUsersSizeIsTakenOrAnError) {
  EXPECT_EQ(Choose(Requirements(true, 8), AddressLimit((8 * 64 + 10) * kMiB)).bytes, 64 * kMiB);
  EXPECT_EQ(Choose(Requirements(true, 8), FileLimit(63 * kMiB)).status.message(),
            "an arena of 64 MiB is above this process's file size limit of 63 MiB; raise it (ulimit -f "
            "unlimited), or "
            "lower SMDDP_ARENA_BYTES");
  EXPECT_EQ(
      Choose(Requirements(true, 2), AddressLimit(100 * kMiB)).status.message(),
      "the shared memory of 2 ranks takes 138 MiB of address space, but this process's limit leaves 100 MiB; "
      "raise it (ulimit -v unlimited), or lower SMDDP_ARENA_BYTES");
}

TEST(ArenaBytes, ArenasThatCanExceedTheGroupLimitCauseAWarning) {
  EXPECT_EQ(Choose(Requirements(false, 8), GroupLimit(kMiB)).warning, "");  // it is no larger than the group
  const Choice choice = Choose(Requirements(true, 8), GroupLimit(8 * 64 * kMiB - 1));
  EXPECT_TRUE(choice.status.ok());
  EXPECT_EQ(choice.bytes, 64 * kMiB);  // they take memory as they are used
  EXPECT_TRUE(Contains(choice.warning, "the arenas of 8 ranks can grow to 512 MiB")) << choice.warning;
}

TEST(ArenaBytes, TheDefaultHoldsAllTensors) {
  constexpr std::uint64_t kGiB = 1 << 30;
  EXPECT_EQ(DefaultArenaBytes(24 * kGiB + 1, {}, 2), 24 * kGiB);
  EXPECT_EQ(DefaultArenaBytes(24 * kGiB, GroupLimit(8 * kGiB), 2), 8 * kGiB);
  EXPECT_EQ(DefaultArenaBytes(2048 * kGiB, {}, 64), 256 * kGiB);
  EXPECT_LE(DefaultArenaBytes(PhysicalMemory(), ReadMemoryLimits(), 1), PhysicalMemory());
  EXPECT_GT(DefaultArenaBytes(PhysicalMemory(), ReadMemoryLimits(), 1), 64 * kMiB);
}

// --- what the limits are ---

TEST(MemoryLimits, AreThoseOfThisProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit file = {5 * kMiB, RLIM_INFINITY}, address = {rlim_t{1} << 50, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &file) != 0 || ::setrlimit(RLIMIT_AS, &address) != 0) ::_exit(2);
    const std::uint64_t before = ReadMemoryLimits().address;
    if (::mmap(nullptr, 100 * kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) ::_exit(3);
    const MemoryLimits after = ReadMemoryLimits();
    const bool right = after.file == 5 * kMiB && before - after.address >= 100 * kMiB &&
                       before - after.address < 101 * kMiB && before < address.rlim_cur;
    ::_exit(right ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A folder that stands for /sys/fs/cgroup.
class GroupMemory : public ::testing::Test {
 protected:
  GroupMemory() {
    char path[] = "/tmp/smddp-test-XXXXXX";
    root_ = ::mkdtemp(path);
  }
  ~GroupMemory() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text << "\n";
  }

  std::string root_;
};

TEST_F(GroupMemory, VersionTwoTheLowestFromTheGroupUp) {
  Write("/memory.max", "9000");
  Write("/a/memory.max", "max");
  Write("/a/b/memory.max", "5000");
  Write("/a/b/c/memory.max", "7000");
  EXPECT_EQ(GroupMemoryLimit("0::/a/b/c\n", root_), 5000u);
  EXPECT_EQ(GroupMemoryLimit("0::/a\n", root_), 9000u);
  EXPECT_EQ(GroupMemoryLimit("0::/\n", root_), 9000u);
}

TEST_F(GroupMemory, VersionOneHasItsOwnHierarchy) {
  Write("/memory/job/memory.limit_in_bytes", "123");
  Write("/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(GroupMemoryLimit("5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n", root_), 123u);
  EXPECT_EQ(GroupMemoryLimit("4:hugetlb,memory:/job\n", root_), 123u);
  EXPECT_EQ(GroupMemoryLimit("4:memory_not:/job\n", root_), kNoLimit);
}

TEST_F(GroupMemory, InAContainerOnlyTheRootIsThere) {
  Write("/memory/memory.limit_in_bytes", "456");
  EXPECT_EQ(GroupMemoryLimit("4:memory:/docker/0123\n", root_), 456u);
}

TEST_F(GroupMemory, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(GroupMemoryLimit("", root_), kNoLimit);
  EXPECT_EQ(GroupMemoryLimit("nonsense\n0:\n0::\n0::relative\n", root_), kNoLimit);
  EXPECT_EQ(GroupMemoryLimit("0::/a\n", root_), kNoLimit);
}

}  // namespace
}  // namespace tf_smddp
