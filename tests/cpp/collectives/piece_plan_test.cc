// How the tensors of a batch are cut into pieces for the other hosts.
#include "kernels/collectives/backends/wire/piece_plan.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

struct Tensor {
  std::uint64_t count, element_bytes;
};

// All pieces, by parts, have each element of each tensor once, in order, where no other one lies.
void ExpectEachElementOnce(const std::vector<Tensor>& tensors, std::uint64_t piece_bytes, std::size_t parts) {
  PiecePlan plan;
  for (const Tensor& tensor : tensors) plan.Add(tensor.count, tensor.element_bytes);
  plan.Cut(piece_bytes);
  std::vector<std::uint64_t> next(tensors.size(), 0);
  for (std::uint64_t piece = 0; piece < plan.pieces(); ++piece) {
    const std::uint64_t size = plan.BytesOf(piece);
    EXPECT_LE(size, piece_bytes);
    std::uint64_t part_begin = 0, segment_end = 0;
    for (std::size_t index = 0; index < parts; ++index) {
      const PiecePlan::Part part = PiecePlan::PartOf(size, parts, index);
      EXPECT_EQ(part.begin, part_begin);
      part_begin += part.bytes;
      for (const PiecePlan::Segment& segment : plan.SegmentsOf(piece, part)) {
        const Tensor& tensor = tensors[segment.item];
        EXPECT_GT(segment.count, 0u);
        EXPECT_EQ(segment.begin, next[segment.item]);
        next[segment.item] += segment.count;
        EXPECT_GE(segment.offset, segment_end);
        EXPECT_GE(segment.offset, part.begin);
        EXPECT_EQ(segment.offset % PiecePlan::kGranule, 0u);
        segment_end = segment.offset + segment.count * tensor.element_bytes;
        EXPECT_LE(segment_end, part.begin + part.bytes);
      }
    }
    EXPECT_EQ(part_begin, size);
    EXPECT_EQ(segment_end, size);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(next[i], tensors[i].count) << i;
}

TEST(PiecePlan, EachElementIsInOnePiece) {
  const std::vector<std::vector<Tensor>> batches = {
      {},
      {{0, 4}},
      {{1, 1}},
      {{16, 4}},
      {{17, 4}},
      {{1000, 4}, {0, 8}, {3, 2}, {0, 1}, {1, 16}, {999, 1}},
      {{100'003, 8}, {1, 1}, {50'021, 2}},
  };
  for (const auto& tensors : batches) {
    for (const std::uint64_t piece_bytes : {64, 128, 1024, 1 << 20}) {
      for (const std::size_t parts : {1, 2, 3, 7}) ExpectEachElementOnce(tensors, piece_bytes, parts);
    }
  }
}

TEST(PiecePlan, ManySmallTensorsShareAPiece) {
  PiecePlan plan;
  for (int i = 0; i < 100; ++i) plan.Add(10, 4);
  plan.Cut(1 << 20);
  EXPECT_EQ(plan.pieces(), 1u);
  EXPECT_EQ(plan.BytesOf(0), 99u * PiecePlan::kGranule + 40);
  plan.Clear();
  plan.Cut(1 << 20);
  EXPECT_EQ(plan.pieces(), 0u);
}

}  // namespace
}  // namespace tf_smddp
