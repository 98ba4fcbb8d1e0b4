// Where bounce buffers lie: slabs that are pinned once, and spans in them.
#include "kernels/engine/devices/bounce_pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {
namespace {

// Records what is pinned.
class Pinning : public MemoryKind {
 public:
  std::string name() const override { return "pinning"; }
  Status CopyToHost(const void*, void*, std::uint64_t, void*, Ended) override { return Internal("not here"); }
  Status CopyFromHost(const void*, void*, std::uint64_t, void*, Ended) override {
    return Internal("not here");
  }
  Status Copy(const InputBuffer&, const Buffer&, std::uint64_t, Ended) override {
    return Internal("not here");
  }
  bool pins() const override { return true; }
  Status Pin(void* data, std::uint64_t bytes) override {
    if (refuses) return Internal("no more pages");
    pinned[data] = bytes;
    return {};
  }
  void Unpin(void* data) override { EXPECT_EQ(pinned.erase(data), 1u); }

  bool IsPinned(const void* span, std::uint64_t bytes) const {
    for (const auto& [data, length] : pinned) {
      const auto* begin = static_cast<const std::byte*>(data);
      if (span >= begin && static_cast<const std::byte*>(span) + bytes <= begin + length) return true;
    }
    return false;
  }

  std::map<void*, std::uint64_t> pinned;
  bool refuses = false;
};

class BouncePoolTest : public ::testing::Test {
 protected:
  BouncePoolTest() {
    EXPECT_TRUE(Arena::Create(std::uint64_t{64} << 20, &mappings_, &arena_).ok());
    pool_ = std::make_unique<BouncePool>(arena_);
  }

  void* Allocate(std::uint64_t bytes) {
    void* span = nullptr;
    const Status status = pool_->Allocate(&kind_, bytes, &span);
    EXPECT_TRUE(status.ok()) << status.message();
    return span;
  }

  MappingCache mappings_;
  std::shared_ptr<Arena> arena_;
  Pinning kind_;
  std::unique_ptr<BouncePool> pool_;
};

TEST_F(BouncePoolTest, SpansArePinnedOnceAndUsedAgain) {
  std::set<void*> spans;
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> held;
    for (const std::uint64_t bytes : {1, 1000, 5 << 20}) {
      held.push_back(Allocate(bytes));
      EXPECT_TRUE(kind_.IsPinned(held.back(), bytes));
      EXPECT_NE(arena_->OffsetOf(held.back(), bytes), kNotInArena);
    }
    spans.insert(held.begin(), held.end());
    for (void* const span : held) pool_->Free(span);
  }
  EXPECT_EQ(spans.size(), 3u);
  EXPECT_EQ(kind_.pinned.size(), 1u);
}

TEST_F(BouncePoolTest, ALargeSpanHasASlabOfItsOwn) {
  void* const span = Allocate(20 << 20);
  EXPECT_TRUE(kind_.IsPinned(span, 20 << 20));
  EXPECT_NE(Allocate(1), nullptr);
  EXPECT_EQ(kind_.pinned.size(), 2u);
  pool_->Free(span);
  EXPECT_EQ(Allocate(20 << 20), span);
}

TEST_F(BouncePoolTest, AFullArenaGivesNoSpan) {
  EXPECT_EQ(Allocate(65 << 20), nullptr);
  // No slab fits beside this, but one of the span's own length does.
  EXPECT_NE(Allocate(60 << 20), nullptr);
  EXPECT_NE(Allocate(1 << 20), nullptr);
}

// Peers may still read or write it.
TEST_F(BouncePoolTest, ASpanThatIsFreedInAQuarantineIsNotReusedBeforeItsEnd) {
  void* const span = Allocate(1000);
  arena_->Quarantine();
  pool_->Free(span);
  EXPECT_NE(Allocate(1000), span);
  arena_->Release();
  EXPECT_EQ(Allocate(1000), span);
}

TEST_F(BouncePoolTest, MemoryThatCannotBePinnedIsGivenBack) {
  kind_.refuses = true;
  void* span = nullptr;
  EXPECT_EQ(pool_->Allocate(&kind_, 10, &span).message(), "no more pages");
  EXPECT_EQ(arena_->used_bytes(), 0u);
}

TEST_F(BouncePoolTest, ItsEndUnpinsAndFreesTheSlabs) {
  pool_->Free(Allocate(10));
  EXPECT_GT(arena_->used_bytes(), 0u);
  pool_.reset();
  EXPECT_TRUE(kind_.pinned.empty());
  EXPECT_EQ(arena_->used_bytes(), 0u);
}

}  // namespace
}  // namespace tf_smddp
