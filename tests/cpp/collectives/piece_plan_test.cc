// How the tensors of a batch are cut into pieces for the other hosts, and who sends what of a piece.
#include "kernels/collectives/backends/wire/piece_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
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

// Each host's sum of each part, as a text, by the number of the part's host, or 0 for the whole piece.
using Holdings = std::vector<std::vector<std::string>>;

// Lets all hosts do the rounds of a kind, each when what it receives has been sent; with `adds` it is added.
// Messages of one host to another come in their order.
void DoRounds(const std::vector<HostExchange>& exchanges,
              const std::function<const std::vector<HostExchange::Round>&(const HostExchange&)>& rounds,
              bool adds, Holdings* has) {
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::vector<std::string>>> sent;
  for (std::size_t number = 0; number < rounds(exchanges[0]).size(); ++number) {
    for (std::size_t host = 0; host < exchanges.size(); ++host) {
      ASSERT_EQ(rounds(exchanges[host]).size(), rounds(exchanges[0]).size());
      for (const HostExchange::Move& move : rounds(exchanges[host])[number]) {
        if (move.send.count == 0) continue;
        EXPECT_TRUE(!exchanges[host].lends || move.send.count == 1);
        ASSERT_LE(move.send.first + move.send.count, exchanges[host].parts.size());
        const auto first = (*has)[host].begin() + static_cast<std::ptrdiff_t>(move.send.first);
        sent[{host, move.peer}].emplace_back(first, first + static_cast<std::ptrdiff_t>(move.send.count));
      }
    }
    for (std::size_t host = 0; host < exchanges.size(); ++host) {
      std::map<std::size_t, std::map<std::size_t, std::string>> terms;  // of each part, by host
      for (const HostExchange::Move& move : rounds(exchanges[host])[number]) {
        if (move.receive.count == 0) continue;
        auto& queue = sent[{move.peer, host}];
        ASSERT_FALSE(queue.empty()) << host << " waits for " << move.peer;
        ASSERT_EQ(queue.front().size(), move.receive.count);
        for (std::size_t i = 0; i < move.receive.count; ++i) {
          terms[move.receive.first + i][move.peer] = queue.front()[i];
        }
        queue.pop_front();
      }
      for (auto& [part, by_host] : terms) {
        if (adds) by_host[host] = (*has)[host][part];
        std::string sum;
        for (const auto& [from, term] : by_host) sum += (sum.empty() ? "" : "+") + term;
        (*has)[host][part] = adds ? "(" + sum + ")" : sum;
      }
    }
  }
  for (const auto& [hosts, queue] : sent) EXPECT_TRUE(queue.empty()) << hosts.second << " lets one lie";
}

// All hosts have the same sum of every part, in which each host is once; returns it.
std::string SumOf(HostExchange (*kind)(std::size_t, std::size_t), std::size_t hosts) {
  std::vector<HostExchange> exchanges;
  Holdings has;
  for (std::size_t host = 0; host < hosts; ++host) {
    exchanges.push_back(kind(hosts, host));
    has.emplace_back(exchanges[host].parts.size(), std::to_string(host));
  }
  DoRounds(exchanges, [](const HostExchange& each) -> auto& { return each.reduction; }, /*adds=*/true, &has);
  for (std::size_t host = 0; host < hosts; ++host) {
    const std::vector<std::size_t>& parts = exchanges[host].parts;
    const auto own = std::find(parts.begin(), parts.end(), host) - parts.begin();
    EXPECT_EQ(has[host][static_cast<std::size_t>(own)], has[0][0]);
  }
  DoRounds(
      exchanges, [](const HostExchange& each) -> auto& { return each.distribution; }, /*adds=*/false, &has);
  const std::string sum = has[0][0];
  if (exchanges[0].parts.size() == 1) return sum;
  for (const auto& parts : has) {
    for (const std::string& part : parts) EXPECT_EQ(part, sum);
  }
  return sum;
}

TEST(HostExchange, DirectAddsHostsInOrder) {
  for (std::size_t hosts = 2; hosts <= 20; ++hosts) {
    std::string sum = "(0";
    for (std::size_t host = 1; host < hosts; ++host) sum += "+" + std::to_string(host);
    EXPECT_EQ(SumOf(HostExchange::Direct, hosts), sum + ")");
    EXPECT_EQ(SumOf(HostExchange::Whole, hosts), sum + ")");
  }
}

TEST(HostExchange, GroupsAddHostsInOrderAndThenGroups) {
  EXPECT_EQ(SumOf(HostExchange::Grouped, 2), "(0+1)");
  EXPECT_EQ(SumOf(HostExchange::Grouped, 3), "(0+(1+2))");
  EXPECT_EQ(SumOf(HostExchange::Grouped, 4), "((0+1)+(2+3))");
  EXPECT_EQ(SumOf(HostExchange::Grouped, 8), "((0+1)+(2+3+4)+(5+6+7))");
  for (std::size_t hosts = 2; hosts <= 100; ++hosts) {
    std::string sum = SumOf(HostExchange::Grouped, hosts);
    sum.erase(std::remove_if(sum.begin(), sum.end(), [](char each) { return each == '(' || each == ')'; }),
              sum.end());
    std::string all = "0";
    for (std::size_t host = 1; host < hosts; ++host) all += "+" + std::to_string(host);
    EXPECT_EQ(sum, all);
  }
}

}  // namespace
}  // namespace tf_smddp
