#include "kernels/control/launch_log.h"

namespace tf_smddp {

LaunchLog::LaunchLog(std::byte* memory, std::size_t capacity)
    : tail_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory)),
      entries_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory + 64)),
      capacity_(capacity) {}

bool LaunchLog::Publish(std::uint64_t position, std::uint64_t item, std::uint64_t flags) {
  std::atomic<std::uint64_t>& entry = EntryAt(position);
  std::uint64_t previous = entry.load(std::memory_order_acquire);
  // Resolve may have settled this position before us.
  if (previous >> (kItemBits + 4) == StampOf(position)) return false;
  const std::uint64_t published = StampOf(position) << (kItemBits + 4) | flags << kItemBits | item;
  return entry.compare_exchange_strong(previous, published, std::memory_order_seq_cst);
}

bool LaunchLog::AppendDone(std::uint64_t item) {
  std::uint64_t tail = tail_->load(std::memory_order_acquire);
  while ((tail & kClosedBit) == 0) {
    if (Claim(&tail, OpenOf(tail))) return Publish(PositionOf(tail), item, kDoneFlag);
  }
  return false;
}

bool LaunchLog::SealOpen() {
  std::uint64_t tail = tail_->load(std::memory_order_acquire);
  while ((tail & kClosedBit) == 0 && OpenOf(tail) != 0) {
    if (Claim(&tail, 0)) return Publish(PositionOf(tail), 0, kMarkerFlag | kSealsFlag);
  }
  return false;
}

LaunchLog::View LaunchLog::Decode(std::uint64_t position, std::uint64_t word) const {
  if (word >> (kItemBits + 4) != StampOf(position)) return {View::kUnpublished, 0, false};
  const std::uint64_t flags = word >> kItemBits & 15;
  if ((flags & kDroppedFlag) != 0) return {View::kDropped, 0, false};
  const bool seals = (flags & kSealsFlag) != 0;
  if ((flags & kMarkerFlag) != 0) return {View::kMarker, 0, seals};
  const View::State state = (flags & kDoneFlag) != 0 ? View::kDone : View::kLaunched;
  return {state, word & ((std::uint64_t{1} << kItemBits) - 1), seals};
}

LaunchLog::View LaunchLog::Read(std::uint64_t position) const {
  return Decode(position, EntryAt(position).load(std::memory_order_acquire));
}

LaunchLog::View LaunchLog::Resolve(std::uint64_t position) {
  std::atomic<std::uint64_t>& entry = EntryAt(position);
  std::uint64_t word = entry.load(std::memory_order_acquire);
  if (Decode(position, word).state == View::kUnpublished) {
    const std::uint64_t dropped = StampOf(position) << (kItemBits + 4) | kDroppedFlag << kItemBits;
    if (entry.compare_exchange_strong(word, dropped, std::memory_order_seq_cst)) word = dropped;
  }
  return Decode(position, word);
}

}  // namespace tf_smddp
