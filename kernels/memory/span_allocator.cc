#include "kernels/memory/span_allocator.h"

#include <algorithm>

namespace tf_smddp {
namespace {

// FindFit examines this many blocks of the length's own class before it splits a block of a longer class.
constexpr int kMostExamined = 8;

std::uint64_t ReservedBytes(std::uint64_t bytes) {
  constexpr std::uint64_t kUnit = SpanAllocator::kAlignment;
  return std::max(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
}

}  // namespace

SpanAllocator::SpanAllocator(std::uint64_t begin, std::uint64_t end) {
  first_.fill(kNil);
  filled_.fill(0);
  if (end <= begin) return;
  const Index index = NewBlock();
  blocks_[index].offset = begin;
  blocks_[index].length = end - begin;
  Link(index);
}

// Below 16 units there is a class for each length, above that 16 classes for each power of two.
int SpanAllocator::ClassOf(std::uint64_t length) {
  const std::uint64_t units = length / kAlignment;
  if (units >> kSubclassBits == 0) return static_cast<int>(units);
  const int power = 63 - __builtin_clzll(units);
  const auto part = static_cast<int>(units >> (power - kSubclassBits)) & ((1 << kSubclassBits) - 1);
  return ((power - kSubclassBits + 1) << kSubclassBits) + part;
}

std::uint64_t SpanAllocator::Allocate(std::uint64_t bytes) {
  if (bytes > kNone - kAlignment) return kNone;
  const std::uint64_t length = ReservedBytes(bytes);
  const Index index = FindFit(length);
  if (index == kNil) return kNone;
  Take(index, length);
  used_bytes_ += length;
  return blocks_[index].offset;
}

SpanAllocator::Index SpanAllocator::FindFit(std::uint64_t length) const {
  const int own = ClassOf(length);
  int examined = 0;
  for (Index index = first_[static_cast<std::size_t>(own)]; index != kNil && examined < kMostExamined;
       index = blocks_[index].next, ++examined) {
    if (blocks_[index].length >= length) return index;
  }
  const Index longer = FirstInClass(own + 1);
  if (longer != kNil) return longer;
  for (Index index = first_[static_cast<std::size_t>(own)]; index != kNil; index = blocks_[index].next) {
    if (blocks_[index].length >= length) return index;
  }
  return kNil;
}

SpanAllocator::Index SpanAllocator::FirstInClass(int from) const {
  auto word = static_cast<std::size_t>(from) / 64;
  std::uint64_t mask = ~std::uint64_t{0} << (from % 64);
  for (; word < filled_.size(); ++word, mask = ~std::uint64_t{0}) {
    const std::uint64_t found = filled_[word] & mask;
    if (found != 0) return first_[word * 64 + static_cast<std::size_t>(__builtin_ctzll(found))];
  }
  return kNil;
}

// Takes the first `length` bytes of the block from its list. The rest of it stays free.
void SpanAllocator::Take(Index index, std::uint64_t length) {
  Unlink(index);
  if (blocks_[index].length > length) Link(Split(index, length));
  in_use_[blocks_[index].offset] = index;
}

// Makes two blocks of one that is in no list, and returns the second, which is in none either.
SpanAllocator::Index SpanAllocator::Split(Index index, std::uint64_t length) {
  const Index rest = NewBlock();
  Block& block = blocks_[index];
  Block& other = blocks_[rest];
  other = block;
  other.offset += length;
  other.length -= length;
  other.before = index;
  if (other.after != kNil) blocks_[other.after].before = rest;
  block.after = rest;
  block.length = length;
  block.memory_end = std::min(block.memory_end, other.offset);
  other.memory_begin = std::max(other.memory_begin, other.offset);
  return rest;
}

void SpanAllocator::Free(std::uint64_t offset) {
  used_bytes_ -= LengthOf(offset);
  Return(offset, true);
}

void SpanAllocator::FreeWithoutMemory(std::uint64_t offset) { Return(offset, false); }

void SpanAllocator::Return(std::uint64_t offset, bool has_memory) {
  const auto found = in_use_.find(offset);
  Index index = found->second;
  in_use_.erase(found);
  Block& block = blocks_[index];
  block.memory_begin = block.offset;
  block.memory_end = block.offset + (has_memory ? block.length : 0);
  block.period = has_memory ? period_ : 0;
  const Index before = block.before;
  const Index after = block.after;
  if (after != kNil && blocks_[after].free) {
    Unlink(after);
    Absorb(index, after);
  }
  if (before != kNil && blocks_[before].free) {
    Unlink(before);
    Absorb(before, index);
    index = before;
  }
  Link(index);
}

std::uint64_t SpanAllocator::LengthOf(std::uint64_t offset) const {
  return blocks_[in_use_.at(offset)].length;
}

bool SpanAllocator::TakeIdle(std::uint64_t least_bytes, std::uint64_t most_bytes, bool any,
                             std::uint64_t* offset, std::uint64_t* length) {
  for (auto of_class = static_cast<std::size_t>(ClassOf(ReservedBytes(least_bytes)));
       of_class < first_.size(); ++of_class) {
    for (Index index = first_[of_class]; index != kNil; index = blocks_[index].next) {
      const Block block = blocks_[index];
      if (!block.has_memory() || block.memory_end - block.memory_begin < least_bytes) continue;
      if (!any && block.period + 1 >= period_) continue;
      *offset = block.memory_begin;
      *length = std::min(block.memory_end, (*offset / most_bytes + 1) * most_bytes) - *offset;
      if (*offset > block.offset) {
        Unlink(index);
        const Index before = index;
        index = Split(before, *offset - block.offset);
        Link(before);
        Link(index);
      }
      Take(index, *length);
      return true;
    }
  }
  return false;
}

SpanAllocator::Index SpanAllocator::NewBlock() {
  if (unused_blocks_.empty()) {
    blocks_.emplace_back();
    return static_cast<Index>(blocks_.size() - 1);
  }
  const Index index = unused_blocks_.back();
  unused_blocks_.pop_back();
  blocks_[index] = Block();
  return index;
}

// Marks the block as free and puts it at the head of its class's list.
void SpanAllocator::Link(Index index) {
  Block& block = blocks_[index];
  const auto of_class = static_cast<std::size_t>(ClassOf(block.length));
  block.free = true;
  block.previous = kNil;
  block.next = first_[of_class];
  if (block.next != kNil) blocks_[block.next].previous = index;
  first_[of_class] = index;
  filled_[of_class / 64] |= std::uint64_t{1} << (of_class % 64);
}

void SpanAllocator::Unlink(Index index) {
  Block& block = blocks_[index];
  const auto of_class = static_cast<std::size_t>(ClassOf(block.length));
  if (block.next != kNil) blocks_[block.next].previous = block.previous;
  if (block.previous != kNil) {
    blocks_[block.previous].next = block.next;
  } else {
    first_[of_class] = block.next;
    if (block.next == kNil) filled_[of_class / 64] &= ~(std::uint64_t{1} << (of_class % 64));
  }
  block.free = false;
}

// Merges the block `index` into `into`, the block before it. Neither may be in a list.
void SpanAllocator::Absorb(Index into, Index index) {
  Block& block = blocks_[into];
  const Block& other = blocks_[index];
  block.length += other.length;
  block.after = other.after;
  if (other.has_memory()) {
    if (!block.has_memory()) block.memory_begin = other.memory_begin;
    block.memory_end = other.memory_end;
  }
  block.period = std::max(block.period, other.period);
  if (block.after != kNil) blocks_[block.after].before = into;
  unused_blocks_.push_back(index);
}

}  // namespace tf_smddp
