// Meeting: what the members of a communicator on one host share about the communicators that they make with
// NCCL: the unique id of the one in use, how far its start has come, and how far the members' streams have.
// Between hosts, the ranks tell each other by messages instead (hosts_meeting.h).
//
// Place in the stack: it lies in shared memory (kernels/control/communicator_segment.h). Zeros are an empty
// one.
//
// Each communicator of NCCL has a *number*, counted from 0. A failed step ends it if a member has calls on
// its stream that others will never make. These calls end with an abort alone. But an abort, like any end of
// a communicator, frees memory that other members still read and write, for calls that all have made. So each
// member counts the batches that its stream has come past, and ends a communicator only when all members have
// come past all that were complete.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_MEETING_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_MEETING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/common/rank_id.h"

namespace tf_smddp::nccl {

// The ends of parts of a communicator's life. A rank says that it has come to one.
enum class Milestone : std::uint8_t {
  kNone,
  kHere,    // this rank's turn has come
  kMade,    // NCCL has made it on this rank
  kProven,  // its first results are right on this rank
  kEnded,   // between hosts: this rank's stream has come past all its calls
};

// Whether the members use NCCL. The first decision for a communicator holds on all of them.
enum class Verdict : std::uint32_t {
  kOpen,      // its start has not ended
  kAccepted,  // all have proven it
  kRefused,   // on one of them it has failed, or was late. It stays so for all that would follow, too
};

class alignas(64) Meeting {
 public:
  // The number of the communicator in use, or to be made.
  std::uint64_t number() const { return number_.load(std::memory_order_acquire); }

  // Leaves its unique id for the others; one member does, once.
  void LeaveId(const UniqueId& id) {
    id_ = id;
    has_id_.store(1, std::memory_order_release);
  }
  // Takes the id, if it is there.
  bool TakeId(UniqueId* id) const {
    if (has_id_.load(std::memory_order_acquire) == 0) return false;
    *id = id_;
    return true;
  }

  // The member packs small tensors (nccl_packing.h). Before it makes its first communicator.
  void SayThatItPacks(MemberId member) { packs_[member.index()].store(1, std::memory_order_release); }
  // Whether all do. The same on all members of a communicator that is ready.
  bool AllPack(int num_members) const {
    return std::all_of(packs_, packs_ + num_members,
                       [](const auto& each) { return each.load(std::memory_order_acquire) != 0; });
  }

  // The member, which calls this, has come to that milestone of the communicator.
  void Say(MemberId member, Milestone milestone) {
    if (!HasSaid(member, milestone)) said_[member.index()].store(milestone, std::memory_order_release);
  }
  bool HasSaid(MemberId member, Milestone milestone) const {
    return said_[member.index()].load(std::memory_order_acquire) >= milestone;
  }

  Verdict verdict() const { return verdict_.load(std::memory_order_acquire); }
  // Returns whether this has decided; if not, another member has.
  bool Decide(Verdict verdict) {
    Verdict open = Verdict::kOpen;
    return verdict_.compare_exchange_strong(open, verdict, std::memory_order_acq_rel);
  }

  // A step has failed, and a member has calls on its stream that others will never make. Before Renew.
  void MarkUnusable() { unusable_.store(1, std::memory_order_relaxed); }
  // The next incarnation begins, and the next communicator, if a member has called MarkUnusable. Nobody else
  // uses this meanwhile.
  void Renew() {
    if (unusable_.exchange(0, std::memory_order_relaxed) == 0) return;
    has_id_.store(0, std::memory_order_relaxed);
    for (auto& each : said_) each.store(Milestone::kNone, std::memory_order_relaxed);
    if (verdict() == Verdict::kAccepted) verdict_.store(Verdict::kOpen, std::memory_order_relaxed);
    number_.fetch_add(1, std::memory_order_release);
  }

  // One more complete batch has ended on `member`: its stream has come past the calls. All members count the
  // same batches, of whichever number.
  void CountEnded(MemberId member) { ended_[member.index()].fetch_add(1, std::memory_order_release); }
  std::uint64_t ended(MemberId member) const {
    return ended_[member.index()].load(std::memory_order_acquire);
  }
  // Whether `batches` of them have ended on each of `num_members` members.
  bool AllEnded(int num_members, std::uint64_t batches) const {
    for (int member = 0; member < num_members; ++member) {
      if (ended(MemberId(member)) < batches) return false;
    }
    return true;
  }

 private:
  std::atomic<std::uint64_t> number_;
  std::atomic<std::uint32_t> has_id_;
  std::atomic<std::uint32_t> unusable_;
  UniqueId id_;
  std::atomic<Verdict> verdict_;
  std::atomic<Milestone> said_[64];       // by member
  std::atomic<std::uint8_t> packs_[64];   // by member
  std::atomic<std::uint64_t> ended_[64];  // by member
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_MEETING_H_
