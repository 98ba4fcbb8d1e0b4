#include "kernels/memory/shared_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/cpp/testing/seccomp.h"

namespace tf_smddp {
namespace {

constexpr std::size_t kBytes = 1 << 20;

TEST(SharedMemory, IsZeroedAndSealed) {
  UniqueFd fd;
  ASSERT_TRUE(CreateSharedMemory("test", kBytes, &fd).ok());
  EXPECT_NE(::ftruncate(fd.get(), kBytes / 2), 0);
  EXPECT_NE(::ftruncate(fd.get(), kBytes * 2), 0);
  MappingCache mappings;
  std::shared_ptr<Mapping> mapping;
  ASSERT_TRUE(mappings.Map(fd.get(), kBytes, &mapping).ok());
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(mapping->data()[i], std::byte{0});
}

TEST(SharedMemory, OneSegmentIsMappedOnce) {
  UniqueFd fd;
  ASSERT_TRUE(CreateSharedMemory("test", kBytes, &fd).ok());
  const UniqueFd again(::dup(fd.get()));
  MappingCache mappings;
  std::shared_ptr<Mapping> first, second;
  ASSERT_TRUE(mappings.Map(fd.get(), kBytes, &first).ok());
  ASSERT_TRUE(mappings.Map(again.get(), kBytes, &second).ok());
  EXPECT_EQ(first, second);
  UniqueFd other;
  ASSERT_TRUE(CreateSharedMemory("test", kBytes, &other).ok());
  std::shared_ptr<Mapping> third;
  ASSERT_TRUE(mappings.Map(other.get(), kBytes, &third).ok());
  EXPECT_NE(first, third);
}

TEST(SharedMemory, ARangeIsMappedOnceToo) {
  UniqueFd fd;
  ASSERT_TRUE(CreateSharedMemory("test", kBytes, &fd).ok());
  MappingCache mappings;
  std::shared_ptr<Mapping> whole, first, again, next;
  ASSERT_TRUE(mappings.Map(fd.get(), kBytes, &whole).ok());
  ASSERT_TRUE(mappings.MapRange(fd.get(), kBytes, kLargestPage, 2 * kLargestPage, &first).ok());
  ASSERT_TRUE(mappings.MapRange(fd.get(), kBytes, kLargestPage, 2 * kLargestPage, &again).ok());
  ASSERT_TRUE(mappings.MapRange(fd.get(), kBytes, 2 * kLargestPage, 2 * kLargestPage, &next).ok());
  EXPECT_EQ(first, again);
  EXPECT_NE(first, next);
  EXPECT_EQ(first->bytes(), 2 * kLargestPage);
  whole->data()[2 * kLargestPage] = std::byte{7};
  EXPECT_EQ(first->data()[kLargestPage], std::byte{7});
  EXPECT_EQ(next->data()[0], std::byte{7});
  EXPECT_NE(
      mappings.MapRange(fd.get(), kBytes / 2, 0, kLargestPage, &next).message().find("bytes instead of"),
      std::string::npos);
  EXPECT_NE(mappings.MapRange(fd.get(), kBytes, 4096, 4096, &next).message().find("begins at 4096"),
            std::string::npos);
}

TEST(SharedMemory, RefusesWhatAPeerShouldNotSend) {
  MappingCache mappings;
  std::shared_ptr<Mapping> mapping;
  UniqueFd fd;
  ASSERT_TRUE(CreateSharedMemory("test", kBytes, &fd).ok());
  EXPECT_NE(mappings.Map(fd.get(), kBytes * 2, &mapping).message().find("bytes instead of"),
            std::string::npos);
  const UniqueFd unsealed(::memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_NE(mappings.Map(unsealed.get(), kBytes, &mapping).message().find("not a sealed memfd"),
            std::string::npos);
  EXPECT_FALSE(mappings.Map(-1, kBytes, &mapping).ok());
}

TEST(SharedMemory, FileSizeLimitIsAnErrorNotASignal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit = {kBytes / 2, kBytes / 2};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    UniqueFd fd;
    const Status status = CreateSharedMemory("test", kBytes, &fd);
    ::_exit(status.message().find("ulimit -f") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Bytes of memory that a segment has.
std::uint64_t MemoryOf(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
}

// Fills a segment, gives back all but its first and last page, and looks at it: 0 when it is as it should be.
int PunchAndLook(std::uint64_t expected_memory) {
  constexpr std::size_t kPage = 4096;
  UniqueFd fd;
  MappingCache mappings;
  std::shared_ptr<Mapping> mapping;
  if (!CreateSharedMemory("test", kBytes, &fd).ok() || !mappings.Map(fd.get(), kBytes, &mapping).ok())
    return 1;
  std::memset(mapping->data(), 7, kPage * 3);
  std::memset(mapping->data() + kBytes - kPage * 3, 7, kPage * 3);
  if (!PunchHole(fd.get(), kPage, kBytes - 2 * kPage).ok()) return 2;
  if (MemoryOf(fd.get()) != expected_memory) return 3;  // before the look, which gives the holes memory
  for (std::size_t i = 0; i < kBytes; ++i) {
    const bool kept = i < kPage || i >= kBytes - kPage;
    if (mapping->data()[i] != std::byte{static_cast<unsigned char>(kept ? 7 : 0)}) return 4;
  }
  return 0;
}

TEST(SharedMemory, PunchHoleMakesZerosAndFreesMemory) { EXPECT_EQ(PunchAndLook(2 * 4096), 0); }

TEST(SharedMemory, PunchHoleWithoutFallocateMakesZeros) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!testing::RefuseCalls({{SYS_fallocate, EPERM}})) ::_exit(9);
    ::_exit(PunchAndLook(6 * 4096));  // what had no memory has none now
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tf_smddp
