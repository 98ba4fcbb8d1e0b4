#include "kernels/control/launch_log.h"

namespace tf_smddp {

LaunchLog::LaunchLog(std::byte* memory, std::size_t capacity)
    : tail_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory)),
      entries_(reinterpret_cast<LogEntry*>(memory + 64)),
      capacity_(capacity) {}

bool LaunchLog::Publish(std::uint64_t position, std::uint64_t item, std::uint64_t flags) {
  LogEntry& entry = EntryAt(position);
  std::uint64_t previous = entry.word.load(std::memory_order_acquire);
  const std::uint64_t published = StampOf(position) << (kItemBits + 4) | flags << kItemBits | item;
  // Resolve has dropped this position already: an incarnation or the job has failed.
  if (previous >> (kItemBits + 4) == StampOf(position)) return false;
  entry.end.store(static_cast<std::uint32_t>(BatchEnd::kRunning), std::memory_order_relaxed);
  entry.claims.store(0, std::memory_order_relaxed);
  entry.done_units.store(0, std::memory_order_relaxed);
  return entry.word.compare_exchange_strong(previous, published, std::memory_order_seq_cst);
}

bool LaunchLog::SealOpen() {
  std::uint64_t tail = tail_->load(std::memory_order_acquire);
  while ((tail & kClosedBit) == 0 && OpenOf(tail) != 0) {
    const std::uint64_t position = PositionOf(tail);
    if (tail_->compare_exchange_weak(tail, MakeTail(position + 1, 0), std::memory_order_seq_cst)) {
      return Publish(position, 0, kMarkerFlag | kSealsFlag);
    }
  }
  return false;
}

LaunchLog::View LaunchLog::Decode(std::uint64_t position, std::uint64_t word) const {
  if (word >> (kItemBits + 4) != StampOf(position)) return {View::kUnpublished, 0, false};
  const std::uint64_t flags = word >> kItemBits & 15;
  if ((flags & kDroppedFlag) != 0) return {View::kDropped, 0, false};
  const bool seals = (flags & kSealsFlag) != 0;
  if ((flags & kMarkerFlag) != 0) return {View::kMarker, 0, seals};
  return {View::kItem, word & ((std::uint64_t{1} << kItemBits) - 1), seals};
}

LaunchLog::View LaunchLog::Read(std::uint64_t position) const {
  return Decode(position, entries_[position & (capacity_ - 1)].word.load(std::memory_order_acquire));
}

LaunchLog::View LaunchLog::Resolve(std::uint64_t position) {
  LogEntry& entry = EntryAt(position);
  std::uint64_t word = entry.word.load(std::memory_order_acquire);
  if (Decode(position, word).state == View::kUnpublished) {
    const std::uint64_t dropped = StampOf(position) << (kItemBits + 4) | kDroppedFlag << kItemBits;
    if (entry.word.compare_exchange_strong(word, dropped, std::memory_order_seq_cst)) word = dropped;
  }
  return Decode(position, word);
}

}  // namespace tf_smddp
