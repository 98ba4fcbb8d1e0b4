#include "kernels/memory/span_allocator.h"

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

TEST(SpanAllocator, GivesAlignedSpansUntilFull) {
  SpanAllocator spans(512, 512 + 1024);
  EXPECT_EQ(spans.Allocate(1), 512u);
  EXPECT_EQ(spans.Allocate(256), 768u);
  EXPECT_EQ(spans.Allocate(257), 1024u);  // two units
  EXPECT_EQ(spans.Allocate(0), SpanAllocator::kNone);
  EXPECT_EQ(spans.used_bytes(), 1024u);
  spans.Free(768);
  EXPECT_EQ(spans.Allocate(257), SpanAllocator::kNone);
  EXPECT_EQ(spans.Allocate(0), 768u);
}

TEST(SpanAllocator, RefusesWhatCannotFit) {
  SpanAllocator spans(0, 4096);
  EXPECT_EQ(spans.Allocate(~std::uint64_t{0}), SpanAllocator::kNone);
  EXPECT_EQ(spans.Allocate(4097), SpanAllocator::kNone);
  SpanAllocator empty(256, 256);
  EXPECT_EQ(empty.Allocate(1), SpanAllocator::kNone);
}

TEST(SpanAllocator, JoinsNeighboursInEveryOrder) {
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    SpanAllocator spans(0, 768);
    std::uint64_t offsets[3];
    for (auto& offset : offsets) offset = spans.Allocate(256);
    for (const int i : order) spans.Free(offsets[i]);
    EXPECT_EQ(spans.Allocate(768), 0u);
  }
}

TEST(SpanAllocator, RandomUseNeverOverlaps) {
  constexpr std::uint64_t kEnd = 1 << 16;
  SpanAllocator spans(0, kEnd);
  std::map<std::uint64_t, std::uint64_t> live;  // offset -> bytes
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 || live.empty()) {
      const std::uint64_t bytes = random() % 3000;
      const std::uint64_t offset = spans.Allocate(bytes);
      if (offset == SpanAllocator::kNone) continue;
      ASSERT_EQ(offset % SpanAllocator::kAlignment, 0u);
      ASSERT_LE(offset + bytes, kEnd);
      const auto next = live.lower_bound(offset);
      if (next != live.end()) {
        ASSERT_LE(offset + bytes, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, offset);
      }
      live[offset] = bytes;
    } else {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      spans.Free(victim->first);
      live.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : live) spans.Free(offset);
  EXPECT_EQ(spans.used_bytes(), 0u);
  EXPECT_EQ(spans.Allocate(kEnd), 0u);
}

TEST(SpanAllocator, TakesTheSpanThatFitsBest) {
  SpanAllocator spans(0, 1 << 20);
  const std::uint64_t large = spans.Allocate(100'000);
  spans.Allocate(64);
  const std::uint64_t small = spans.Allocate(10'000);
  spans.Allocate(64);
  spans.Free(large);
  spans.Free(small);
  EXPECT_EQ(spans.Allocate(9'990), small);
  EXPECT_EQ(spans.Allocate(9'990), large);  // its front
}

TEST(SpanAllocator, FindsTheOnlySpanThatFits) {
  // All spans are of one size class and nearly equally long.
  SpanAllocator spans(0, 1 << 22);
  std::vector<std::uint64_t> offsets;
  const std::uint64_t only = spans.Allocate(8444);
  for (int i = 0; i < 50; ++i) {
    spans.Allocate(64);
    offsets.push_back(spans.Allocate(8192));
  }
  while (spans.Allocate(4096) != SpanAllocator::kNone) continue;
  while (spans.Allocate(64) != SpanAllocator::kNone) continue;
  spans.Free(only);
  for (const std::uint64_t offset : offsets) spans.Free(offset);
  EXPECT_EQ(spans.Allocate(8444), only);
  EXPECT_EQ(spans.Allocate(8704), SpanAllocator::kNone);
}

TEST(SpanAllocator, KnowsWhatIsIdle) {
  SpanAllocator spans(0, 1 << 20);
  std::uint64_t offset, length;
  EXPECT_FALSE(spans.TakeIdle(64, 1 << 20, /*any=*/true, &offset, &length));  // never used
  const std::uint64_t first = spans.Allocate(1000);
  spans.Allocate(64);
  const std::uint64_t second = spans.Allocate(500);
  spans.Allocate(64);
  spans.Free(first);
  spans.Tick();
  spans.Free(second);
  spans.Tick();
  ASSERT_TRUE(spans.TakeIdle(64, 1 << 20, /*any=*/false, &offset, &length));
  EXPECT_EQ(offset, first);
  EXPECT_EQ(length, 1024u);
  EXPECT_FALSE(spans.TakeIdle(64, 1 << 20, /*any=*/false, &offset, &length));
  spans.FreeWithoutMemory(first);
  EXPECT_FALSE(spans.TakeIdle(600, 1 << 20, /*any=*/true, &offset, &length));
  ASSERT_TRUE(spans.TakeIdle(64, 1 << 20, /*any=*/true, &offset, &length));
  EXPECT_EQ(offset, second);
  EXPECT_EQ(length, 512u);
  spans.FreeWithoutMemory(second);
  EXPECT_FALSE(spans.TakeIdle(64, 1 << 20, /*any=*/true, &offset, &length));
}

TEST(SpanAllocator, TakesIdleMemoryInPiecesAndNothingElse) {
  SpanAllocator spans(0, 1 << 20);
  spans.Free(spans.Allocate(2560));  // joins the rest, which was never used
  std::uint64_t offset, length;
  for (const std::uint64_t piece : {0, 1024, 2048}) {
    ASSERT_TRUE(spans.TakeIdle(64, 1024, /*any=*/true, &offset, &length));
    EXPECT_EQ(offset, piece);
    EXPECT_EQ(length, piece == 2048 ? 512u : 1024u);
    EXPECT_EQ(spans.used_bytes(), 0u);
    spans.FreeWithoutMemory(offset);
  }
  EXPECT_FALSE(spans.TakeIdle(64, 1024, /*any=*/true, &offset, &length));
  spans.Free(spans.Allocate(1 << 20));
  ASSERT_TRUE(spans.TakeIdle(64, 1024, /*any=*/true, &offset, &length));
  EXPECT_EQ(spans.Allocate((1 << 20) - 1024), 1024u);  // all but the piece
}

// What no span has used since its memory was returned has none; all else is found.
TEST(SpanAllocator, RandomUseReturnsAllMemory) {
  constexpr std::uint64_t kUnit = SpanAllocator::kAlignment;
  constexpr std::uint64_t kEnd = 1 << 16;
  SpanAllocator spans(0, kEnd);
  std::vector<bool> has_memory(kEnd / kUnit);
  const auto set_memory = [&](std::uint64_t offset, std::uint64_t length, bool value) {
    for (std::uint64_t at = offset; at < offset + length; at += kUnit) has_memory[at / kUnit] = value;
  };
  std::vector<std::uint64_t> in_use, taken;
  std::uint64_t used = 0, offset, length;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const unsigned action = random() % 4;
    if (action == 0) {
      offset = spans.Allocate(random() % 3000);
      if (offset == SpanAllocator::kNone) continue;
      set_memory(offset, spans.LengthOf(offset), true);
      used += spans.LengthOf(offset);
      in_use.push_back(offset);
    } else if (action == 1 && !in_use.empty()) {
      std::swap(in_use[random() % in_use.size()], in_use.back());
      used -= spans.LengthOf(in_use.back());
      spans.Free(in_use.back());
      in_use.pop_back();
    } else if (action == 2 && spans.TakeIdle(kUnit, 4096, random() % 2 == 0, &offset, &length)) {
      ASSERT_EQ(offset / 4096, (offset + length - 1) / 4096);
      set_memory(offset, length, false);
      taken.push_back(offset);
    } else if (action == 3) {
      spans.Tick();
      if (!taken.empty()) {
        spans.FreeWithoutMemory(taken.back());
        taken.pop_back();
      }
    }
    ASSERT_EQ(spans.used_bytes(), used);
  }
  for (const std::uint64_t each : in_use) spans.Free(each);
  for (const std::uint64_t each : taken) spans.FreeWithoutMemory(each);
  while (spans.TakeIdle(kUnit, 4096, /*any=*/true, &offset, &length)) {
    set_memory(offset, length, false);
    spans.FreeWithoutMemory(offset);
  }
  EXPECT_EQ(has_memory, std::vector<bool>(kEnd / kUnit));
  EXPECT_EQ(spans.Allocate(kEnd), 0u);
}

}  // namespace
}  // namespace tf_smddp
