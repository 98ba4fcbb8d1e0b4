#include "kernels/memory/shared_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "kernels/memory/arena.h"

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

TEST(Arena, SpansLieBehindTheReserve) {
  MappingCache mappings;
  std::unique_ptr<Arena> arena;
  ASSERT_TRUE(Arena::Create(kBytes, 4096, &mappings, &arena).ok());
  void* span = arena->Allocate(100);
  EXPECT_EQ(arena->OffsetOf(span, 100), 4096u);
  EXPECT_EQ(arena->OffsetOf(span, kBytes), kNotInArena);  // reaches past the end
  int on_stack = 0;
  EXPECT_EQ(arena->OffsetOf(&on_stack, sizeof on_stack), kNotInArena);
  EXPECT_EQ(arena->Allocate(kBytes), nullptr);
  EXPECT_EQ(arena->used_bytes(), 128u);
  arena->Free(span, 100);
  EXPECT_EQ(arena->used_bytes(), 0u);
}

TEST(Arena, QuarantineKeepsSpansOutOfUse) {
  MappingCache mappings;
  std::unique_ptr<Arena> arena;
  ASSERT_TRUE(Arena::Create(kBytes, 0, &mappings, &arena).ok());
  void* span = arena->Allocate(64);
  arena->Quarantine();
  arena->Free(span, 64);
  EXPECT_EQ(arena->used_bytes(), 64u);
  EXPECT_NE(arena->Allocate(64), span);
}

TEST(ArenaView, ResolvesOnlyWhatIsInside) {
  MappingCache mappings;
  UniqueFd fd;
  ASSERT_TRUE(CreateSharedMemory("test", kBytes, &fd).ok());
  std::shared_ptr<Mapping> mapping;
  ASSERT_TRUE(mappings.Map(fd.get(), kBytes, &mapping).ok());
  const ArenaView view(mapping);
  EXPECT_EQ(view.Resolve(64, 64), mapping->data() + 64);
  EXPECT_NE(view.Resolve(kBytes, 0), nullptr);
  EXPECT_EQ(view.Resolve(kBytes, 1), nullptr);
  EXPECT_EQ(view.Resolve(kBytes - 1, 2), nullptr);
  EXPECT_EQ(view.Resolve(~std::uint64_t{0} - 1, 64), nullptr);
  EXPECT_EQ(view.Resolve(64, ~std::uint64_t{0} - 32), nullptr);
}

}  // namespace
}  // namespace tf_smddp
