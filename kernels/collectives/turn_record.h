// TurnRecord: the turns of the batches of one communicator of ours on one host.
//
// Place in the stack: backends draw turns, and between hosts the relay does (kernels/engine/hosts/relay.h).
// backends/nccl/nccl_turns.h says what turns are for. It lies in shared memory
// (kernels/control/job_segment.h). Zeros are an empty one.
//
// Batches are counted from 0 in each incarnation. A batch has a turn from the draw until all members have
// made its calls. There may be several such batches where other hosts are ahead of this one.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_TURN_RECORD_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_TURN_RECORD_H_

#include <atomic>
#include <cstdint>

namespace tf_smddp {

class alignas(64) TurnRecord {
 public:
  // So many batches may have a turn at a time.
  static constexpr std::uint64_t kRoom = 64;

  // Whether there is room for the turn of `batch`.
  bool HasRoomFor(std::uint64_t batch) const { return batch - done_.load(std::memory_order_acquire) < kRoom; }

  // True if the caller is to draw the turn of `batch`; then it calls Draw. The batch before it has a turn.
  // False if there is no room.
  bool BeginToDraw(std::uint64_t batch) {
    std::uint64_t drawn = 2 * batch;
    return HasRoomFor(batch) && drawn_.compare_exchange_strong(drawn, drawn + 1, std::memory_order_seq_cst);
  }
  void Draw(std::atomic<std::uint64_t>* counter) {
    const std::uint64_t batch = drawn_.load(std::memory_order_relaxed) / 2;
    turns_[batch % kRoom].store(counter->fetch_add(1, std::memory_order_seq_cst), std::memory_order_seq_cst);
    drawn_.fetch_add(1, std::memory_order_seq_cst);
  }

  // Sets *turn to that of `batch`, which is not done yet. False while it has none.
  bool TurnOf(std::uint64_t batch, std::uint64_t* turn) const {
    if (drawn_.load(std::memory_order_seq_cst) < 2 * batch + 2) return false;
    *turn = turns_[batch % kRoom].load(std::memory_order_seq_cst);
    return true;
  }
  // Whether a batch besides the first `made` ones has a turn before `turn`, or may be about to get one. The
  // others have turns in ascending order.
  bool MayHaveBefore(std::uint64_t turn, std::uint64_t made) const {
    const std::uint64_t drawn = drawn_.load(std::memory_order_seq_cst);
    return drawn % 2 != 0 ||
           (drawn / 2 > made && turns_[made % kRoom].load(std::memory_order_seq_cst) < turn);
  }

  // All members have made the calls of the first `batches` batches.
  void CountDone(std::uint64_t batches) {
    std::uint64_t done = done_.load(std::memory_order_relaxed);
    while (done < batches && !done_.compare_exchange_weak(done, batches, std::memory_order_release)) {
    }
  }

  // The next incarnation begins, or another communicator gets this. Nobody else uses it meanwhile.
  void Renew() {
    drawn_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t> drawn_;  // twice the batches that have had a turn; odd while one is drawn
  std::atomic<std::uint64_t> done_;   // so many batches are done
  std::atomic<std::uint64_t> turns_[kRoom];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_TURN_RECORD_H_
