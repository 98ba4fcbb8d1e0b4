// GroupCounter: counts the ready requests of each group, so that the last one can seal the batch.
//
// Place in the stack: in the control segment, above common/ only. The count is a hint for batching;
// correctness does not depend on it. Two groups whose tickets are kCells apart share a cell, and may then be
// sealed later or earlier than intended.
#ifndef TF_SMDDP_KERNELS_CONTROL_GROUP_COUNTER_H_
#define TF_SMDDP_KERNELS_CONTROL_GROUP_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace tf_smddp {

class GroupCounter {
 public:
  static constexpr std::uint64_t kCells = 1024;

  // Counts one ready request of the group with `ticket`. Returns true for the last of its `num_params`
  // requests. Any thread of any process.
  bool CountReady(std::uint64_t ticket, std::uint32_t num_params) {
    std::atomic<std::uint64_t>& cell = cells_[ticket % kCells];
    const std::uint64_t owner = (ticket + 1) << kCountBits;
    std::uint64_t seen = cell.load(std::memory_order_relaxed);
    std::uint64_t next;
    do {
      next = (seen >> kCountBits == (owner >> kCountBits) ? seen : owner) + 1;
    } while (!cell.compare_exchange_weak(seen, next, std::memory_order_acq_rel));
    return (next & kCountMask) == num_params;
  }

  // Sets all counts to 0. No other thread of any process may use the counter meanwhile (Note [Restart] in
  // failure_record.h).
  void Clear() {
    for (auto& cell : cells_) cell.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr int kCountBits = 24;
  static constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;

  std::atomic<std::uint64_t> cells_[kCells];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_GROUP_COUNTER_H_
