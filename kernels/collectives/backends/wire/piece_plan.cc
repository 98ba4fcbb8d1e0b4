#include "kernels/collectives/backends/wire/piece_plan.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

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

HostExchange HostExchange::Whole(std::size_t hosts, std::size_t host) {
  HostExchange exchange = {{host}, {Round()}, {}, /*lends=*/true};
  for (std::size_t step = 1; step < hosts; ++step) {
    exchange.reduction[0].push_back({(host + step) % hosts, {0, 1}, {0, 1}});
  }
  return exchange;
}

HostExchange HostExchange::Direct(std::size_t hosts, std::size_t host) {
  HostExchange exchange = {std::vector<std::size_t>(hosts), {Round()}, {Round()}, /*lends=*/true};
  std::iota(exchange.parts.begin(), exchange.parts.end(), std::size_t{0});
  // Each begins with the host behind its own, so that not all send to one at a time.
  for (std::size_t step = 1; step < hosts; ++step) {
    const std::size_t peer = (host + step) % hosts;
    exchange.reduction[0].push_back({peer, {peer, 1}, {host, 1}});
    exchange.distribution[0].push_back({peer, {host, 1}, {peer, 1}});
  }
  return exchange;
}

HostExchange HostExchange::Grouped(std::size_t hosts, std::size_t host) {
  std::size_t groups = 1;
  while (groups * groups < hosts) ++groups;
  const auto first_of = [&](std::size_t group) { return group * hosts / groups; };
  const auto size_of = [&](std::size_t group) { return first_of(group + 1) - first_of(group); };
  HostExchange exchange = {{}, std::vector<Round>(2), std::vector<Round>(2), /*lends=*/false};
  std::vector<std::size_t>& parts = exchange.parts;
  // Column c has the c-th member of each group that has so many. Only the last column can be short.
  const std::size_t columns = (hosts + groups - 1) / groups;
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t group = 0; group < groups; ++group) {
      if (column < size_of(group)) parts.push_back(first_of(group) + column);
    }
  }
  // A slice: a column, and a share of the last one if the group has no member there.
  const std::size_t last = (columns - 1) * groups;
  const auto slice_of = [&](std::size_t group, std::size_t member) {
    const std::size_t size = size_of(group), count = size == columns ? 0 : hosts - last;
    const std::size_t begin = count * member / size, end = count * (member + 1) / size;
    const Parts column = {member * groups, member + 1 == columns ? hosts - last : groups};
    return std::array<Parts, 2>{column, Parts{last + begin, end - begin}};
  };
  std::size_t own_group = 0;
  while (first_of(own_group + 1) <= host) ++own_group;
  const std::size_t first = first_of(own_group), size = size_of(own_group), member = host - first;
  const std::array<Parts, 2> own_slice = slice_of(own_group, member);
  const Parts none = {0, 0};
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t other = (member + step) % size;
    const std::array<Parts, 2> slice = slice_of(own_group, other);
    for (const std::size_t i : {0, 1}) {
      exchange.reduction[0].push_back({first + other, slice[i], own_slice[i]});
      exchange.distribution[1].push_back({first + other, own_slice[i], slice[i]});
    }
  }
  for (const Parts& range : own_slice) {
    for (std::size_t part = range.first; part < range.first + range.count; ++part) {
      if (parts[part] == host) continue;
      exchange.reduction[1].push_back({parts[part], {part, 1}, none});
      exchange.distribution[0].push_back({parts[part], none, {part, 1}});
    }
  }
  const auto own = static_cast<std::size_t>(std::find(parts.begin(), parts.end(), host) - parts.begin());
  const auto has_own = [own](const Parts& range) { return own - range.first < range.count; };
  for (std::size_t step = 1; step < groups; ++step) {
    const std::size_t group = (own_group + step) % groups;
    std::size_t holder = 0;
    for (std::array<Parts, 2> slice = slice_of(group, 0); !has_own(slice[0]) && !has_own(slice[1]);) {
      slice = slice_of(group, ++holder);
    }
    exchange.reduction[1].push_back({first_of(group) + holder, none, {own, 1}});
    exchange.distribution[0].push_back({first_of(group) + holder, {own, 1}, none});
  }
  return exchange;
}

}  // namespace tf_smddp
