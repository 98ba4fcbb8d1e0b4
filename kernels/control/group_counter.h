// GroupCounter: how many of a group's requests are ready, so that its last one can seal the batch.
//
// Place in the stack: in the control segment, above common/ only. Advice for batching, never for correctness:
// two groups whose tickets are kCells apart share a cell, and then merely seal later or earlier.
#ifndef TF_SMDDP_KERNELS_CONTROL_GROUP_COUNTER_H_
#define TF_SMDDP_KERNELS_CONTROL_GROUP_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace tf_smddp {

class GroupCounter {
 public:
  static constexpr std::uint64_t kCells = 1024;

  // Counts one more ready request of the group with `ticket`; true when it is number `num_params`, the last.
  // Any thread of any process.
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

  // Nobody else may be counting (Note [Restart] in failure_record.h).
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
