#include "kernels/memory/arena.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::shared_ptr<Arena> MakeArena(std::uint64_t bytes) {
  static auto* mappings = new MappingCache;
  std::shared_ptr<Arena> arena;
  EXPECT_TRUE(Arena::Create(bytes, mappings, &arena).ok());
  return arena;
}

// Returns the memory that the arena occupies.
std::uint64_t Resident(const Arena& arena) {
  struct stat info;
  EXPECT_EQ(::fstat(arena.fd(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

void* AllocateAndWrite(Arena* arena, std::uint64_t bytes, int value) {
  void* data = arena->Allocate(bytes);
  if (data != nullptr) std::memset(data, value, bytes);
  return data;
}

// Runs `body` in a forked child and returns its result.
template <typename Body>
int InChild(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Arena, KnowsItsSpans) {
  const auto arena = MakeArena(kMiB);
  ASSERT_NE(arena->Allocate(64), nullptr);
  void* span = arena->Allocate(100);
  EXPECT_EQ(arena->OffsetOf(span, 100), 256u);
  EXPECT_EQ(arena->OffsetOf(span, kMiB), kNotInArena);  // reaches past the end
  int on_stack = 0;
  EXPECT_EQ(arena->OffsetOf(&on_stack, sizeof on_stack), kNotInArena);
  EXPECT_EQ(arena->Allocate(kMiB), nullptr);
  EXPECT_EQ(arena->used_bytes(), 256u + 256u);
  arena->Free(span);
  EXPECT_EQ(arena->used_bytes(), 256u);
}

TEST(Arena, QuarantineKeepsSpansOutOfUseUntilRelease) {
  const auto arena = MakeArena(kMiB);
  void* first = arena->Allocate(64);
  void* second = arena->Allocate(64);
  arena->Quarantine();
  arena->Free(first);
  arena->Quarantine();
  arena->Free(second);
  EXPECT_EQ(arena->used_bytes(), 512u);
  void* third = arena->Allocate(64);
  EXPECT_NE(third, first);
  EXPECT_NE(third, second);
  arena->Release();  // the other quarantine lasts
  EXPECT_EQ(arena->used_bytes(), 768u);
  arena->Release();
  EXPECT_EQ(arena->used_bytes(), 256u);
  EXPECT_EQ(arena->Allocate(64), first);
  arena->Free(third);  // after the quarantines: free at once
  EXPECT_EQ(arena->used_bytes(), 256u);
}

TEST(ArenaView, ResolvesOnlyWhatIsInside) {
  MappingCache mappings;
  UniqueFd fd;
  ASSERT_TRUE(CreateSharedMemory("test", kMiB, &fd).ok());
  std::shared_ptr<Mapping> mapping;
  ASSERT_TRUE(mappings.Map(fd.get(), kMiB, &mapping).ok());
  const ArenaView view(mapping);
  EXPECT_EQ(view.Resolve(64, 64), mapping->data() + 64);
  EXPECT_NE(view.Resolve(kMiB, 0), nullptr);
  EXPECT_EQ(view.Resolve(kMiB, 1), nullptr);
  EXPECT_EQ(view.Resolve(kMiB - 1, 2), nullptr);
  EXPECT_EQ(view.Resolve(~std::uint64_t{0} - 1, 64), nullptr);
  EXPECT_EQ(view.Resolve(64, ~std::uint64_t{0} - 32), nullptr);
}

TEST(Arena, CountsUsedBytesAndRefusedCalls) {
  const auto arena = MakeArena(4 * kMiB);
  void* first = arena->Allocate(3 * kMiB);
  EXPECT_EQ(arena->Allocate(2 * kMiB), nullptr);
  EXPECT_EQ(arena->BytesOf(first), 3 * kMiB);
  arena->Free(first);
  EXPECT_NE(arena->Allocate(100), nullptr);
  EXPECT_EQ(arena->used_bytes(), 256u);
  EXPECT_EQ(arena->peak_bytes(), 3 * kMiB);
  EXPECT_EQ(arena->refused(), 1u);
}

TEST(Arena, ReusesTheSpanThatWasFreedLast) {
  const auto arena = MakeArena(64 * kMiB);
  std::vector<void*> spans;
  for (int i = 0; i < 6; ++i) spans.push_back(arena->Allocate(kMiB));
  arena->Free(spans[1]);
  arena->Free(spans[3]);
  EXPECT_EQ(arena->Allocate(kMiB), spans[3]);
  EXPECT_EQ(arena->Allocate(kMiB - 64), spans[1]);
}

TEST(Arena, TrimReturnsIdleMemory) {
  const auto arena = MakeArena(64 * kMiB);
  void* idle = AllocateAndWrite(arena.get(), 10 * kMiB, 1);
  void* kept = AllocateAndWrite(arena.get(), 5 * kMiB, 2);
  arena->Free(idle);
  EXPECT_TRUE(arena->Trim());
  EXPECT_EQ(Resident(*arena), 15 * kMiB);  // free for less than a period
  void* again = arena->Allocate(10 * kMiB);
  EXPECT_EQ(again, idle);
  arena->Free(again);
  EXPECT_TRUE(arena->Trim());
  EXPECT_EQ(Resident(*arena), 15 * kMiB);  // used in the last period
  EXPECT_TRUE(arena->Trim());
  EXPECT_TRUE(arena->Trim());
  EXPECT_EQ(Resident(*arena), 5 * kMiB);
  EXPECT_EQ(static_cast<char*>(kept)[kMiB], 2);
  EXPECT_EQ(AllocateAndWrite(arena.get(), 10 * kMiB, 3), idle);
  EXPECT_EQ(Resident(*arena), 15 * kMiB);
}

TEST(Arena, TrimReturnsMuchMemoryInParts) {
  const auto arena = MakeArena(1024 * kMiB);
  std::vector<void*> spans;
  for (int i = 0; i < 12; ++i) {
    spans.push_back(AllocateAndWrite(arena.get(), 40 * kMiB, 1));
    arena->Allocate(64);  // so that they do not join
  }
  for (void* span : spans) arena->Free(span);
  EXPECT_TRUE(arena->Trim());
  EXPECT_TRUE(arena->Trim());
  int calls = 1;
  while (!arena->Trim()) ++calls;
  EXPECT_EQ(calls, 2);
  EXPECT_LT(Resident(*arena), kMiB);
}

// Memory that is being returned is neither in use nor missing.
TEST(Arena, TrimBesideAThreadThatAllocates) {
  const auto arena = MakeArena(1024 * kMiB);
  std::atomic<bool> end{false};
  std::thread trims([&arena, &end] {
    for (int i = 0; i < 100; ++i) {
      arena->Free(AllocateAndWrite(arena.get(), 8 * kMiB, 1));
      for (int period = 0; period < 3; ++period) arena->Trim();
    }
    end = true;
  });
  while (!end) {
    void* data = arena->Allocate(kMiB);
    if (data != nullptr) arena->Free(data);
    ::usleep(20);  // else the other thread hardly gets the lock
  }
  trims.join();
  EXPECT_LE(arena->peak_bytes(), 9 * kMiB);
  EXPECT_EQ(arena->refused(), 0u);
  EXPECT_EQ(arena->used_bytes(), 0u);
}

TEST(Arena, AClosedArenaReturnsMemoryAtOnceAndAllocatesNothing) {
  const auto arena = MakeArena(64 * kMiB);
  void* first = AllocateAndWrite(arena.get(), 4 * kMiB, 1);
  void* second = AllocateAndWrite(arena.get(), 4 * kMiB, 2);
  void* third = AllocateAndWrite(arena.get(), 4 * kMiB, 3);
  arena->Free(first);
  arena->Close(/*for_good=*/false);
  EXPECT_EQ(Resident(*arena), 8 * kMiB);
  EXPECT_EQ(arena->Allocate(64), nullptr);
  arena->Free(third);
  EXPECT_EQ(Resident(*arena), 4 * kMiB);
  EXPECT_EQ(static_cast<char*>(second)[0], 2);
  arena->Open();
  EXPECT_NE(arena->Allocate(64), nullptr);
}

TEST(Arena, AnArenaClosedForGoodStaysClosedAndEndsTheQuarantine) {
  const auto arena = MakeArena(64 * kMiB);
  void* first = AllocateAndWrite(arena.get(), 4 * kMiB, 1);
  void* second = AllocateAndWrite(arena.get(), 4 * kMiB, 2);
  arena->Quarantine();
  arena->Free(first);
  EXPECT_TRUE(arena->quarantined());
  arena->Close(/*for_good=*/false);
  EXPECT_EQ(Resident(*arena), 8 * kMiB);
  arena->Close(/*for_good=*/true);
  EXPECT_EQ(Resident(*arena), 4 * kMiB);
  arena->Free(second);
  EXPECT_EQ(Resident(*arena), 0u);
  arena->Open();
  EXPECT_EQ(arena->Allocate(64), nullptr);
}

TEST(Arena, ChangingSizesDoNotMakeItGrow) {
  const auto arena = MakeArena(1024 * kMiB);
  std::mt19937 random(1);
  std::uint64_t after_a_while = 0;
  for (int step = 0; step < 10'000; ++step) {
    // A batch's tensors: as large as the batch, which changes.
    const std::uint64_t batch = 1 + random() % 64;
    std::vector<void*> spans;
    for (const std::uint64_t width : {5000, 70'000, 300, 20'000, 90'000, 4000}) {
      spans.push_back(arena->Allocate(batch * width));
      ASSERT_NE(spans.back(), nullptr);
      static_cast<char*>(spans.back())[batch * width - 1] = 1;
    }
    while (!spans.empty()) {
      std::swap(spans[random() % spans.size()], spans.back());
      arena->Free(spans.back());
      spans.pop_back();
    }
    if (step == 1000) after_a_while = Resident(*arena);
  }
  EXPECT_EQ(arena->used_bytes(), 0u);
  EXPECT_LE(Resident(*arena), after_a_while * 11 / 10);
}

TEST(Arena, AForkedChildHasAPrivateCopy) {
  const auto arena = MakeArena(8 * kMiB);
  auto* data = static_cast<char*>(AllocateAndWrite(arena.get(), kMiB, 1));
  EXPECT_EQ(InChild([&] {
              if (data[5] != 1) return 1;
              data[5] = 2;
              if (arena->Allocate(64) != nullptr) return 2;
              arena->Free(data);
              arena->Trim();
              arena->Trim();
              arena->Trim();
              if (InChild([&] { return data[5]; }) != 2) return 3;
              return arena->in_child() ? 0 : 4;
            }),
            0);
  EXPECT_EQ(data[5], 1);
  EXPECT_EQ(arena->used_bytes(), kMiB);
  EXPECT_FALSE(arena->in_child());
}

TEST(Arena, ForkWhileThreadsAllocate) {
  const auto arena = MakeArena(64 * kMiB);
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&arena, &end, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      while (!end) {
        void* data = AllocateAndWrite(arena.get(), 1 + random() % 100'000, i);
        if (data != nullptr) arena->Free(data);
      }
    });
  }
  for (int fork = 0; fork < 100; ++fork) {
    EXPECT_EQ(InChild([&] { return arena->Allocate(64) == nullptr ? 0 : 1; }), 0);
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->used_bytes(), 0u);
}

}  // namespace
}  // namespace tf_smddp
