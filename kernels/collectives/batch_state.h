// BatchState: what the ranks share about a batch that runs: which chunks are claimed, how much is done, its
// end.
//
// Place in the stack: includes nothing of the project. It lies in the readiness table, with the first
// request of the batch: that request's generation is not reused before all ranks have acknowledged it, which
// they do only after the batch has ended.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BATCH_STATE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BATCH_STATE_H_

#include <atomic>
#include <cstdint>

namespace tf_smddp {

enum class BatchEnd : std::uint32_t { kRunning = 0, kComplete = 1, kAborted = 2 };

class alignas(64) BatchState {
 public:
  // Nobody else may use it.
  void Reset() {
    end_.store(static_cast<std::uint32_t>(BatchEnd::kRunning), std::memory_order_relaxed);
    claims_.store(0, std::memory_order_relaxed);
    done_units_.store(0, std::memory_order_relaxed);
    joined_.store(0, std::memory_order_relaxed);
  }

  // Counts the caller as a rank that has read what it must of its inputs before anybody writes an output. For
  // transfers that need that. Any thread of any process.
  void Join() { joined_.fetch_add(1, std::memory_order_acq_rel); }
  std::uint32_t joined() const { return joined_.load(std::memory_order_acquire); }

  // Claims one of `total` chunks (below 2^32) for the caller: the first free one, or with `from_back` the
  // last free one. If a tensor is reduced again and again, a rank then gets the same part each time,
  // which is in its caches; and a faster rank gets more. False when all are claimed. Any thread of any
  // process.
  bool Claim(std::uint64_t total, bool from_back, std::uint64_t* chunk) {
    constexpr int kHalf = 32;
    const std::uint64_t before =
        claims_.fetch_add(from_back ? std::uint64_t{1} << kHalf : 1, std::memory_order_relaxed);
    const std::uint64_t front = before & ((std::uint64_t{1} << kHalf) - 1), back = before >> kHalf;
    *chunk = from_back ? total - 1 - back : front;
    return front + back < total;
  }

  // Counts a unit of the batch's work as done. True for the last of `total`. Any thread of any process.
  bool AddDone(std::uint64_t total) {
    return done_units_.fetch_add(1, std::memory_order_acq_rel) + 1 == total;
  }

  // Ends the batch, unless it has ended. Returns its end, which is `wanted` or the one that came first. Any
  // thread of any process.
  BatchEnd End(BatchEnd wanted) {
    auto expected = static_cast<std::uint32_t>(BatchEnd::kRunning);
    if (end_.compare_exchange_strong(expected, static_cast<std::uint32_t>(wanted),
                                     std::memory_order_seq_cst)) {
      return wanted;
    }
    return static_cast<BatchEnd>(expected);
  }
  BatchEnd ended() const { return static_cast<BatchEnd>(end_.load(std::memory_order_acquire)); }

 private:
  std::atomic<std::uint32_t> end_;  // BatchEnd
  std::atomic<std::uint64_t>
      claims_;  // chunks claimed: from the front in the lower half, from the back above
  std::atomic<std::uint64_t> done_units_;
  std::atomic<std::uint32_t> joined_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BATCH_STATE_H_
