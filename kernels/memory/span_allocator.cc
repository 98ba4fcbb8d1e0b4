#include "kernels/memory/span_allocator.h"

#include <algorithm>
#include <iterator>

namespace tf_smddp {
namespace {

std::uint64_t ReservedBytes(std::uint64_t bytes) {
  constexpr std::uint64_t kUnit = SpanAllocator::kAlignment;
  return std::max(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
}

}  // namespace

SpanAllocator::SpanAllocator(std::uint64_t begin, std::uint64_t end) {
  if (end > begin) free_[begin] = end - begin;
}

std::uint64_t SpanAllocator::Allocate(std::uint64_t bytes) {
  if (bytes > kNone - kAlignment) return kNone;
  const std::uint64_t wanted = ReservedBytes(bytes);
  std::lock_guard<std::mutex> lock(mu_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, length] = *it;
    if (length < wanted) continue;
    free_.erase(it);
    if (length > wanted) free_[offset + wanted] = length - wanted;
    used_bytes_ += wanted;
    return offset;
  }
  return kNone;
}

void SpanAllocator::Free(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t length = ReservedBytes(bytes);
  std::lock_guard<std::mutex> lock(mu_);
  used_bytes_ -= length;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += length;
      return;
    }
  }
  free_[offset] = length;
}

std::uint64_t SpanAllocator::used_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  return used_bytes_;
}

}  // namespace tf_smddp
