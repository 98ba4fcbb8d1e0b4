// FailureRecord: the epochs of one communicator, and why one of them failed.
//
// Place in the stack: above common/; in the communicator's segment. Not here: the end of the whole job
// (abort_record.h), and what ranks do about a failure (kernels/engine).
//
// An epoch runs until a rank fails it. Then every rank lets go of all that was pending in it ("drains"), and
// the last one to do so clears the tables and starts the next epoch:
//
//   running(e) -> writing(e) -> failed(e) -> [all have drained] -> restarting(e) -> running(e + 1)
//
// Note [Restart]: once a rank has drained, none of its threads touches the communicator's shared memory
// before it sees running(e + 1). So the rank that drains last is alone with it. A rank that dies in between
// aborts the job.
#ifndef TF_SMDDP_KERNELS_CONTROL_FAILURE_RECORD_H_
#define TF_SMDDP_KERNELS_CONTROL_FAILURE_RECORD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/common/rank_mask.h"

namespace tf_smddp {

class FailureRecord {
 public:
  // Fails epoch `epoch`, if it runs. The first call of all ranks wins: its text is everyone's error. `origin`
  // is the number of the failure (kernels/engine/failure_memory.h), not 0. Returns whether this was it. Any
  // thread of any process; the caller may die at any instruction in here.
  bool Raise(std::uint64_t epoch, std::uint64_t origin, const std::string& text);

  // Whether a failure of this origin has been dealt with in one of the last epochs, or is now. Any thread.
  bool Knows(std::uint64_t origin) const;

  // Whether `epoch` has begun, and has failed or is over. Any thread.
  bool IsBroken(std::uint64_t epoch) const {
    return word_.load(std::memory_order_seq_cst) > epoch << kStateBits;
  }

  // Whether `epoch` has failed; also true when it is over.
  bool Failed(std::uint64_t epoch) const {
    return word_.load(std::memory_order_seq_cst) != epoch << kStateBits;
  }

  // Whether `epoch` has begun; it may have failed since.
  bool Begun(std::uint64_t epoch) const {
    return word_.load(std::memory_order_seq_cst) >> kStateBits >= epoch;
  }

  // What has become of an epoch that has not ended here: kDamaged is what cannot be.
  enum class State { kRuns, kWriting, kFailed, kDamaged };
  State StateOf(std::uint64_t epoch) const;

  // Why the epoch failed. Only between kFailed and one's own Drained.
  std::string Text() const;
  std::uint64_t Origin() const;

  // Bits of the members that have drained the epoch that failed; 0 when none did. Any thread.
  std::uint64_t DrainedMask() const { return drained_.load(std::memory_order_seq_cst); }

  // Member `index` has drained `epoch`. Comm thread.
  void Drained(int index) {
    drained_.fetch_or(MemberMask::Of(MemberId(index)).bits(), std::memory_order_seq_cst);
  }

  // True for exactly one caller, once all of `members` have drained the failed `epoch`: it clears what is
  // shared and calls Restart. To be tried after Drained, and after a bit of `members` was cleared. Comm
  // thread.
  bool TryRestart(std::uint64_t epoch, const std::atomic<std::uint64_t>& members) {
    const MemberMask drained(drained_.load(std::memory_order_seq_cst));
    if (!drained.ContainsAll(MemberMask(members.load(std::memory_order_seq_cst)))) return false;
    std::uint64_t expected = epoch << kStateBits | kFailed;
    return word_.compare_exchange_strong(expected, epoch << kStateBits | kRestarting,
                                         std::memory_order_seq_cst);
  }

  // Starts the epoch after `epoch`. Note [Restart].
  void Restart(std::uint64_t epoch) {
    drained_.store(0, std::memory_order_relaxed);
    word_.store((epoch + 1) << kStateBits, std::memory_order_seq_cst);
  }

 private:
  static constexpr int kStateBits = 2;
  static constexpr std::uint64_t kWriting = 1, kFailed = 2, kRestarting = 3;
  static constexpr std::size_t kTextBytes = 4096;
  static constexpr std::uint64_t kOrigins = 64;

  std::atomic<std::uint64_t> word_;  // epoch << kStateBits | state
  std::atomic<std::uint64_t> drained_;
  std::atomic<std::uint64_t> num_origins_;
  std::atomic<std::uint64_t> origins_[kOrigins];  // the last ones, as a ring
  char text_[kTextBytes];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_FAILURE_RECORD_H_
