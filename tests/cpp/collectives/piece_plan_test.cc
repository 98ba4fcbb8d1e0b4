// How the tensors of a batch are cut into pieces for the other hosts, and who sends what of a piece.
#include "kernels/collectives/backends/wire/piece_plan.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
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

// What each host has of each part, as the hosts whose partial results are in it. Both by their numbers.
using Holdings = std::vector<std::vector<std::multiset<std::size_t>>>;

// Does what HierarchicalTransfer does with an exchange; returns what the hosts have after the reduction, and
// after the distribution.
std::pair<Holdings, Holdings> RunExchange(const HostExchange& exchange, std::size_t hosts) {
  Holdings has(hosts, std::vector<std::multiset<std::size_t>>(exchange.parts));
  for (std::size_t host = 0; host < hosts; ++host) {
    for (auto& part : has[host]) part = {host};
  }
  const auto part_of = [&](std::size_t host, std::size_t number) { return (host + number) % exchange.parts; };
  for (const HostExchange::Round& round : exchange.rounds) {
    const Holdings before = has;
    for (std::size_t host = 0; host < hosts; ++host) {
      for (const std::size_t distance : round.distances) {
        EXPECT_LE(exchange.First(distance) + round.parts, exchange.parts);
        for (std::size_t i = 0; i < round.parts; ++i) {
          const std::size_t to = (host + distance) % hosts;
          const std::size_t part = part_of(host, exchange.First(distance) + i);
          EXPECT_EQ(part, part_of(to, i));
          has[to][part].insert(before[host][part].begin(), before[host][part].end());
        }
      }
    }
  }
  const Holdings reduced = has;
  for (auto round = exchange.rounds.rbegin(); round != exchange.rounds.rend(); ++round) {
    const Holdings before = has;
    for (std::size_t host = 0; host < hosts; ++host) {
      for (const std::size_t distance : round->distances) {
        for (std::size_t i = 0; i < round->parts; ++i) {
          const std::size_t part = part_of(host, i);
          has[(host + hosts - distance) % hosts][part] = before[host][part];
        }
      }
    }
  }
  return {reduced, has};
}

TEST(HostExchange, EachPartialResultIsAddedOnce) {
  for (std::size_t hosts = 2; hosts <= 40; ++hosts) {
    std::multiset<std::size_t> all;
    for (std::size_t host = 0; host < hosts; ++host) all.insert(host);
    for (const HostExchange& exchange : {HostExchange::Whole(hosts), HostExchange::Direct(hosts)}) {
      const auto [reduced, distributed] = RunExchange(exchange, hosts);
      for (std::size_t host = 0; host < hosts; ++host) {
        EXPECT_EQ(reduced[host][host % exchange.parts], all);
        if (exchange.parts == 1) continue;  // done
        for (const auto& part : distributed[host]) EXPECT_EQ(part, all);
      }
    }
  }
}

}  // namespace
}  // namespace tf_smddp
