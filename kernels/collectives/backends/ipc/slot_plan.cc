#include "kernels/collectives/backends/ipc/slot_plan.h"

#include <algorithm>

namespace tf_smddp::ipc {
namespace {

constexpr std::uint64_t kAlignment = 256;  // of a window, in bytes

// The elements of a window that holds all of a call in one chunk. It may be more than is needed: a
// reduce-scatter cuts the window into parts of the length of the longest shard.
std::uint64_t WholeCapacity(const Collective& collective, const Call& call) {
  std::uint64_t most = 0;
  for (const ParticipantId each : FirstIds<ParticipantId>(call.num_ranks)) {
    most = std::max(most, collective.InputCount(call, each));
  }
  // Rows may have no elements.
  return most + std::max<std::uint64_t>(call.row_count, 1) * static_cast<std::uint64_t>(call.num_ranks);
}

}  // namespace

void SlotPlan::Add(const Collective& collective, const Call& call) {
  const std::size_t item = items_++;
  const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
  const std::uint64_t whole = WholeCapacity(collective, call);
  const std::uint64_t bytes = (whole * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes <= slot_bytes_ && collective.NumChunks(call, whole) <= 1) {
    if (collective.NumChunks(call, whole) == 0) return;
    if (slots_.empty() || used_ + bytes > slot_bytes_) {
      slots_.emplace_back();
      used_ = 0;
    }
    slots_.back().push_back({item, 0, whole, used_});
    used_ += bytes;
    return;
  }
  const std::uint64_t capacity = slot_bytes_ / element_bytes;
  const std::uint64_t chunks = collective.NumChunks(call, capacity);
  for (std::uint64_t index = 0; index < chunks; ++index) slots_.push_back({{item, index, capacity, 0}});
  used_ = slot_bytes_;
}

void SlotPlan::Clear() {
  items_ = 0;
  slots_.clear();
  used_ = 0;
}

}  // namespace tf_smddp::ipc
