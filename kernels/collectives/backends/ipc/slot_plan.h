// SlotPlan: deals the chunks of a batch to slots of the windows. It is pure arithmetic, and the same on all
// ranks.
//
// Place in the stack: below ipc_transfer.h. A tensor that needs less than a slot shares one with others, so
// that many small tensors go in one step. One that needs more has slots of its own.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_SLOT_PLAN_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_SLOT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/collectives/collective.h"

namespace tf_smddp::ipc {

// A chunk, and its place (StagedChunk in kernels/collectives/collective.h).
struct SlotPart {
  std::size_t item;        // the number of its Add, from 0
  std::uint64_t index;     // of the chunk
  std::uint64_t capacity;  // of its window, in elements
  std::uint64_t offset;    // of its window in the slot, in bytes
};

class SlotPlan {
 public:
  // `slot_bytes` holds one element for each rank, at least.
  explicit SlotPlan(std::uint64_t slot_bytes) : slot_bytes_(slot_bytes) {}

  // Adds all chunks of a call.
  void Add(const Collective& collective, const Call& call);

  std::uint64_t size() const { return slots_.size(); }
  const std::vector<SlotPart>& At(std::uint64_t slot) const { return slots_[slot]; }

  void Clear();

 private:
  const std::uint64_t slot_bytes_;
  std::size_t items_ = 0;
  std::vector<std::vector<SlotPart>> slots_;
  std::uint64_t used_ = 0;  // bytes of the last slot
};

}  // namespace tf_smddp::ipc

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_SLOT_PLAN_H_
