// FailureRecord: the state of a communicator's current incarnation, and the reason of its failure.
//
// Place in the stack: above common/; in the communicator's segment. abort_record.h has the end of the whole
// job; kernels/engine has what the ranks do about a failure.
//
// An *incarnation* of a communicator lasts from one failed step to the next; the first one is number 0. It
// runs until a rank fails it. Then every member *drains* it: it ends all its pending requests of that
// incarnation. The last member to drain clears the tables and starts the next incarnation. An incarnation of
// which all members have left ends in the same way, but nobody has an error then, and all members return with
// the next one:
//
//   running(i) -> writing(i) -> failed(i) -> [all have drained] -> restarting(i) -> running(i + 1)
//
// Note [Restart]: once a member has drained, none of its threads uses the communicator's shared memory until
// it sees running(i + 1). So the member that drains last is the only one that uses it. If a rank dies in
// between, the job is aborted.
#ifndef TF_SMDDP_KERNELS_CONTROL_FAILURE_RECORD_H_
#define TF_SMDDP_KERNELS_CONTROL_FAILURE_RECORD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/common/rank_id.h"
#include "kernels/common/rank_mask.h"

namespace tf_smddp {

class FailureRecord {
 public:
  // Fails `incarnation`, if it is running. The first call of all ranks wins: its text becomes the error on
  // every rank. `origin` is the number of the failure (kernels/engine/core/failure_memory.h), not 0. It is no
  // failure if all members have left: then `last_to_leave` is the rank of the job that did so last. Returns
  // whether this call was the first. Any thread of any process; the process may die at any instruction in
  // here.
  bool Raise(std::uint64_t incarnation, std::uint64_t origin, const std::string& text,
             RankId last_to_leave = {});

  // Returns whether one of the last kOrigins failures of this communicator had this origin. Any thread.
  bool Knows(std::uint64_t origin) const;

  // Returns whether `incarnation` has failed or is over; false if it has not begun. Any thread.
  bool IsBroken(std::uint64_t incarnation) const {
    return word_.load(std::memory_order_seq_cst) > incarnation << kStateBits;
  }

  // Returns whether `incarnation`, which has begun, has failed or is over. Any thread.
  bool Failed(std::uint64_t incarnation) const {
    return word_.load(std::memory_order_seq_cst) != incarnation << kStateBits;
  }

  // Returns whether `incarnation` has begun; it may have failed since. Any thread.
  bool Begun(std::uint64_t incarnation) const {
    return word_.load(std::memory_order_seq_cst) >> kStateBits >= incarnation;
  }

  // Returns the state of `incarnation`, which has begun and which this member has not drained. kDamaged
  // stands for a word that only corrupt memory can have.
  enum class State { kRuns, kWriting, kFailed, kDamaged };
  State StateOf(std::uint64_t incarnation) const;

  // Return why the incarnation failed. A member may call them once StateOf has returned kFailed, and until it
  // calls Drained.
  std::string Text() const;
  std::uint64_t Origin() const;
  // No rank if that was a failure.
  RankId LastToLeave() const { return RankId(last_to_leave_.load(std::memory_order_acquire) - 1); }

  // Returns the mask of the members that have drained the failed incarnation. Any thread.
  std::uint64_t DrainedMask() const { return drained_.load(std::memory_order_seq_cst); }

  // Marks that member `index` has drained the failed incarnation. Progress thread (doorbell.h).
  void Drained(int index) {
    drained_.fetch_or(MemberMask::Of(MemberId(index)).bits(), std::memory_order_seq_cst);
  }

  // Returns true to exactly one caller once all of `members` have drained the failed `incarnation`. That
  // caller clears the shared state and calls Restart. A member calls it after Drained. Progress thread.
  bool TryRestart(std::uint64_t incarnation, MemberMask members) {
    const MemberMask drained(drained_.load(std::memory_order_seq_cst));
    if (!drained.ContainsAll(members)) return false;
    std::uint64_t expected = incarnation << kStateBits | kFailed;
    return word_.compare_exchange_strong(expected, incarnation << kStateBits | kRestarting,
                                         std::memory_order_seq_cst);
  }

  // Starts the incarnation after `incarnation` (Note [Restart]).
  void Restart(std::uint64_t incarnation) {
    drained_.store(0, std::memory_order_relaxed);
    word_.store((incarnation + 1) << kStateBits, std::memory_order_seq_cst);
  }

 private:
  static constexpr int kStateBits = 2;
  static constexpr std::uint64_t kWriting = 1, kFailed = 2, kRestarting = 3;
  static constexpr std::size_t kTextBytes = 4096;
  static constexpr std::uint64_t kOrigins = 64;

  std::atomic<std::uint64_t> word_;  // incarnation << kStateBits | state
  std::atomic<std::uint64_t> drained_;
  std::atomic<std::int32_t> last_to_leave_;  // 1 + the rank; 0 for a failure
  std::atomic<std::uint64_t> num_origins_;
  std::atomic<std::uint64_t> origins_[kOrigins];  // a ring of the last origins
  char text_[kTextBytes];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_FAILURE_RECORD_H_
