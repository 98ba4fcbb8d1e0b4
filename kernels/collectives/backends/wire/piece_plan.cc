#include "kernels/collectives/backends/wire/piece_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tf_smddp {

void PiecePlan::Clear() {
  items_.clear();
  bytes_ = 0;
}

void PiecePlan::Add(std::uint64_t count, std::uint64_t element_bytes, std::uint64_t begin) {
  items_.push_back({bytes_, count, element_bytes, begin});
  bytes_ += (count * element_bytes + kGranule - 1) / kGranule * kGranule;
}

std::uint64_t PiecePlan::BytesOf(std::uint64_t piece) const {
  const std::uint64_t base = piece * piece_bytes_, end = std::min(base + piece_bytes_, bytes_);
  const auto behind =
      std::lower_bound(items_.begin(), items_.end(), end,
                       [](const Item& each, std::uint64_t byte) { return each.first_byte < byte; });
  auto last = std::prev(behind);
  while (last->count == 0) --last;
  return std::min(end, last->first_byte + last->count * last->element_bytes) - base;
}

std::vector<PiecePlan::Segment> PiecePlan::SegmentsOf(std::uint64_t piece, Part part) const {
  const std::uint64_t base = piece * piece_bytes_;
  const std::uint64_t begin = base + part.begin, end = begin + part.bytes;
  std::vector<Segment> segments;
  auto item = std::upper_bound(items_.begin(), items_.end(), begin,
                               [](std::uint64_t byte, const Item& each) { return byte < each.first_byte; });
  if (item != items_.begin()) --item;
  for (; item != items_.end() && item->first_byte < end; ++item) {
    const std::uint64_t last = item->first_byte + item->count * item->element_bytes;
    const std::uint64_t from = std::max(begin, item->first_byte), to = std::min(end, last);
    if (from >= to) continue;  // empty, or its gap
    segments.push_back({static_cast<std::size_t>(item - items_.begin()),
                        item->begin + (from - item->first_byte) / item->element_bytes,
                        (to - from) / item->element_bytes, from - base});
  }
  return segments;
}

PiecePlan::Part PiecePlan::PartOf(std::uint64_t bytes, std::size_t parts, std::size_t index) {
  const std::uint64_t granules = (bytes + kGranule - 1) / kGranule;
  const std::uint64_t begin = granules * index / parts * kGranule;
  const std::uint64_t end = std::min(granules * (index + 1) / parts * kGranule, bytes);
  return {begin, end - begin};
}

HostExchange HostExchange::Whole(std::size_t hosts) {
  HostExchange exchange = Direct(hosts);
  exchange.parts = 1;
  return exchange;
}

HostExchange HostExchange::Direct(std::size_t hosts) {
  Round round = {{}, 1};
  for (std::size_t distance = 1; distance < hosts; ++distance) round.distances.push_back(distance);
  return {hosts, {std::move(round)}};
}

}  // namespace tf_smddp
