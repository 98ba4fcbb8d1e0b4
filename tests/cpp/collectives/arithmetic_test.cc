// Shards and chunk plans, exhaustively over small sizes.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/chunk_plan.h"
#include "kernels/collectives/shard.h"

namespace tf_smddp {
namespace {

std::vector<std::uint64_t> Counts(std::uint64_t n) {
  return {0, 1, n - 1, n, n + 1, 16 * n, 16 * n + 1, 997, 1 << 20, (1 << 20) + 7};
}

TEST(Shard, ShardsTileTheRange) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const std::uint64_t granule : {1, 8, 16, 32, 64}) {
      for (const std::uint64_t count : Counts(static_cast<std::uint64_t>(ranks))) {
        std::uint64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Shard shard = ShardOf(count, ranks, rank, granule);
          if (shard.count > 0) {
            ASSERT_EQ(shard.begin, next);
            ASSERT_EQ(shard.begin % granule, 0u);
          }
          ASSERT_LE(shard.begin + shard.count, count);
          next += shard.count;
        }
        ASSERT_EQ(next, count) << ranks << " ranks, granule " << granule;
      }
    }
  }
}

TEST(Shard, SharesAreEvenToAGranule) {
  const Shard first = ShardOf(1000, 4, 0, 16);
  EXPECT_EQ(first.count, 256u);
  EXPECT_EQ(ShardOf(1000, 4, 3, 16).count, 1000u - 3 * 256);
}

TEST(EvenShard, TheFirstShardsHaveOneMore) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const std::uint64_t count : Counts(static_cast<std::uint64_t>(ranks))) {
      const std::uint64_t less = count / static_cast<std::uint64_t>(ranks);
      std::uint64_t next = 0, longer = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard = EvenShardOf(count, ranks, rank);
        ASSERT_EQ(shard.begin, next);
        ASSERT_TRUE(shard.count == less || shard.count == less + 1);
        ASSERT_TRUE(shard.count == less ||
                    longer == static_cast<std::uint64_t>(rank));  // no longer one behind a shorter
        longer += shard.count - less;
        next += shard.count;
      }
      ASSERT_EQ(next, count) << ranks << " ranks";
      ASSERT_EQ(longer, count % static_cast<std::uint64_t>(ranks));
    }
  }
}

TEST(ChunkPlan, ChunksTileEveryItem) {
  for (const std::uint64_t chunk_count : {1, 3, 64, 1000}) {
    const std::vector<std::uint64_t> counts = {0, 5, 0, 0, 1, 64, 65, 128, 0, 999, 1000, 1001, 0};
    ChunkPlan plan;
    std::uint64_t chunks = 0;
    for (const std::uint64_t count : counts) {
      plan.Add(count, chunk_count);
      chunks += (count + chunk_count - 1) / chunk_count;
    }
    ASSERT_EQ(plan.total(), chunks);
    std::vector<std::uint64_t> covered(counts.size(), 0);
    std::size_t item = 0;
    for (std::uint64_t i = 0; i < plan.total(); ++i) {
      const ChunkPlan::Chunk chunk = plan.At(i);
      ASSERT_GE(chunk.item, item);
      item = chunk.item;
      ASSERT_EQ(chunk.begin, covered[item]);
      ASSERT_GT(chunk.count, 0u);
      ASSERT_LE(chunk.count, chunk_count);
      covered[item] += chunk.count;
    }
    EXPECT_EQ(covered, counts);
    plan.Clear();
    EXPECT_EQ(plan.total(), 0u);
  }
}

}  // namespace
}  // namespace tf_smddp
