// JobSegment: the control segment, the shared memory through which the ranks of one host coordinate.
//
// Place in the stack: the top of the data structures of control/. Rank 0 creates the segment, and the
// bootstrap (bootstrap.h) sends its descriptor to the other ranks. Every rank maps the head at once, and the
// region of a communicator when it joins that communicator.
//
//   [ head: abort record, doorbells, rank records | region of communicator 0 | region of communicator 1 | … ]
//
// Note [Zeros are objects]: the structs in shared memory begin as zeros that the system has made, and are
// used where they lie, with no constructor called. C++17 has no word for that with atomics. The compilers
// that we support (GCC, Clang) give it the meaning that it has here: all bytes zero is a valid state of each
// of them.
//
// The file is sparse: the region of a communicator that does not exist takes no memory. A communicator has
// the lowest region that is free on the host when its first member there claims one, so it may have another
// one on another host.
#ifndef TF_SMDDP_KERNELS_CONTROL_JOB_SEGMENT_H_
#define TF_SMDDP_KERNELS_CONTROL_JOB_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/collectives/backend.h"
#include "kernels/common/clock.h"
#include "kernels/common/config.h"
#include "kernels/common/rank_mask.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/communicator_segment.h"
#include "kernels/control/doorbell.h"
#include "kernels/control/progress_record.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

// The largest number of communicators that a job may have at one time.
inline constexpr int kMaxCommunicators = 64;

// The state that a rank publishes to the others, for all communicators together.
struct alignas(64) RankRecord {
  enum Left : std::uint32_t { kIsThere, kCalledShutdown, kScriptEnded };
  std::atomic<std::uint32_t> left;
  std::atomic<std::uint64_t> steps;  // that it made with all ranks (statistics.h); set before `left`
  // The device of the first tensor on one that this rank has reduced (MemoryKind::id); 0 before.
  std::atomic<std::uint64_t> gpu;
  // In cache lines of its own, because it changes with each request, while every rank reads `left` at each
  // request.
  alignas(64) ProgressRecord progress;
};

// How a claim of a region ends.
enum class Claim { kDone, kDisputed, kNoRoom, kAborted };

class JobSegment {
 public:
  // Returns the bytes that every rank maps: the head, and the region of the world communicator.
  static std::size_t MappedBytes(const Config& config, const Backends& backends);

  // Rank 0: creates the segment for kMaxCommunicators communicators, or for as many as fit below this
  // process's file size limit.
  static Status Create(const Config& config, const Backends& backends, UniqueFd* fd);

  // All ranks: maps the head, and keeps `fd`. `backends` outlive it. Errors: Internal when the segment was
  // created with other settings or backends.
  static Status Open(UniqueFd fd, const Config& config, const Backends& backends,
                     std::shared_ptr<MappingCache> mappings, std::unique_ptr<JobSegment>* segment);

  AbortRecord& abort() { return head_->abort; }
  // By local rank.
  RankRecord& rank(int rank) { return head_->ranks[rank]; }
  // The doorbell of local rank `rank`'s progress thread of the communicator in `region`.
  Doorbell& bell(int region, int rank) { return head_->bells[region][rank].bell; }

  // Sets *region to that of communicator `id`, which has the local ranks `members` and, if it is `wired`,
  // ranks of other hosts. The local rank `self` uses it until it calls LetGo. If the members make it `alone`,
  // the region is kept until all of them have used it, so that one that comes late finds the failure of the
  // others; and kDisputed says that another rank has named other members. Any thread.
  Claim ClaimRegion(std::uint32_t id, MemberMask members, bool wired, bool alone, MemberId self, int* region);
  // The last of its ranks to call this clears the region for another communicator. Any thread.
  Status LetGo(int region, MemberId self);
  // Whether a rank still uses the region for communicator `id`. Any thread.
  bool IsClaimed(int region, std::uint32_t id) const {
    return head_->claims[region].communicator.load(std::memory_order_seq_cst) == id;
  }
  // The communicator that has the region is about to have requests. Any thread.
  void Begin(int region, std::uint32_t id) {
    head_->claims[region].begun.store(id, std::memory_order_seq_cst);
  }
  // Returns the region of a communicator that has begun, or -1 if it has no members on this host. Any thread.
  int RegionOf(std::uint32_t id) const;

  // From which the batches of all communicators draw turns (kernels/collectives/turn_record.h).
  std::atomic<std::uint64_t>& turn_counter() { return head_->turn_counter; }
  // The turns that batches of the communicator in `region` have drawn.
  TurnRecord& turn_record(int region) { return head_->turn_records[region]; }
  // The ranks of all hosts that are known to have shut down: bit r % 64 of word r / 64. Only when there are
  // several hosts.
  std::atomic<std::uint64_t>& shut_down(int word) { return head_->shut_down[word]; }
  // See Job::last_work. By rank.
  std::atomic<Clock::rep>& last_work(int rank) { return head_->last_work[rank]; }
  // Bits of the warnings about GPUs that have been written (kernels/engine/devices/gpu_places.h).
  std::atomic<std::uint32_t>& gpu_warnings() { return head_->gpu_warnings; }

  // The number of communicators that the segment has room for.
  int max_communicators() const { return max_communicators_; }

  // Maps a region, below max_communicators(). Any thread.
  // `num_ranks`: of its members on this host; `wired`: it has more on others.
  Status OpenCommunicator(int region, int num_ranks, bool wired,
                          std::unique_ptr<CommunicatorSegment>* segment);

 private:
  struct alignas(64) PaddedBell {
    Doorbell bell;
  };
  // The communicator that has a region; `begun` is its number, too, once it has requests.
  struct Claimed {
    std::atomic<std::uint32_t> communicator, begun;  // 0: none; the world needs no claim
    std::uint64_t wired, members, users;             // under the lock; the last two are masks of local ranks
  };
  struct Head {
    std::uint64_t magic;
    AbortRecord abort;
    RankRecord ranks[kMaxLocalRanks];
    PaddedBell bells[kMaxCommunicators][kMaxLocalRanks];
    std::atomic<std::uint32_t> claims_locked;
    Claimed claims[kMaxCommunicators];  // by region
    std::atomic<std::uint64_t> turn_counter;
    TurnRecord turn_records[kMaxCommunicators];
    std::atomic<std::uint32_t> gpu_warnings;
    std::atomic<std::uint64_t> shut_down[kMaxRanks / 64];
    std::atomic<Clock::rep> last_work[kMaxRanks];
  };

  JobSegment(UniqueFd fd, const Config& config, const Backends& backends, int max_communicators,
             std::shared_ptr<MappingCache> mappings, std::shared_ptr<Mapping> head);

  // False if the job was aborted: whoever has the lock may have died.
  bool LockClaims();
  void UnlockClaims() { head_->claims_locked.store(0, std::memory_order_release); }

  static std::size_t HeadBytes();
  // The world communicator (region 0) has a larger table than the others.
  static CommunicatorSegment::Layout LayoutOf(int region, int num_ranks, bool wired, const Config& config,
                                              const Backends& backends);
  static std::size_t RegionBytes(int region, const Config& config, const Backends& backends);
  static std::size_t RegionOffset(int region, const Config& config, const Backends& backends);

  const UniqueFd fd_;
  const Config config_;
  const Backends& backends_;
  const int max_communicators_;
  const std::shared_ptr<MappingCache> mappings_;
  const std::shared_ptr<Mapping> mapping_;  // maps the head
  Head* const head_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_JOB_SEGMENT_H_
