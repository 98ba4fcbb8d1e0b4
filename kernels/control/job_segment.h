// JobSegment: the shared memory through which the ranks of one host coordinate.
//
// Place in the stack: the top of control/'s data structures; bootstrap.h hands its descriptor round. Rank 0
// makes it; everyone maps its head at once, and the region of a communicator when it joins that.
//
//   [ head: abort record, doorbells, rank records | region of communicator 0 | region of communicator 1 | … ]
//
// The regions of communicators that do not exist take address range in the file and no memory.
#ifndef TF_SMDDP_KERNELS_CONTROL_JOB_SEGMENT_H_
#define TF_SMDDP_KERNELS_CONTROL_JOB_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/communicator_segment.h"
#include "kernels/control/doorbell.h"
#include "kernels/control/progress_record.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

// Most communicators that a job has at a time.
inline constexpr int kMaxCommunicators = 64;

// What a rank publishes about itself, whatever the communicator.
struct alignas(64) RankRecord {
  std::atomic<std::uint32_t> left;  // 1 once it has shut down in good order
  // In lines of its own: every rank looks at `left` at each request, and this changes at each request.
  alignas(64) ProgressRecord progress;
};

class JobSegment {
 public:
  // Bytes that every rank maps of it: the head, and the region of the world's communicator.
  static std::size_t MappedBytes(const Config& config);

  // Rank 0: makes it, as large as this process's file size limit allows: fewer communicators where it is low.
  static Status Create(const Config& config, UniqueFd* fd);

  // All: maps its head, and keeps `fd`. Errors: Internal when it was made with other settings.
  static Status Open(UniqueFd fd, const Config& config, std::shared_ptr<MappingCache> mappings,
                     std::unique_ptr<JobSegment>* segment);

  AbortRecord& abort() { return head_->abort; }
  RankRecord& rank(int rank) { return head_->ranks[rank]; }
  // What wakes the comm thread that rank `rank` has for communicator `communicator`.
  Doorbell& bell(int communicator, int rank) { return head_->bells[communicator][rank].bell; }

  // Bits of the ranks that have let go of communicator `communicator`, which is being removed.
  std::atomic<std::uint64_t>& let_go(int communicator) { return head_->let_go[communicator]; }

  // How many communicators there is room for.
  int max_communicators() const { return max_communicators_; }

  // Maps the region of communicator `id`, below max_communicators(). Any thread.
  Status OpenCommunicator(int id, int num_ranks, std::unique_ptr<CommunicatorSegment>* segment);

  // Makes the region of `id` zero again, and gives its memory back. Nobody may have it mapped in use.
  Status ClearCommunicator(int id);

 private:
  struct alignas(64) PaddedBell {
    Doorbell bell;
  };
  struct Head {
    std::uint64_t magic;
    AbortRecord abort;
    RankRecord ranks[kMaxLocalRanks];
    PaddedBell bells[kMaxCommunicators][kMaxLocalRanks];
    std::atomic<std::uint64_t> let_go[kMaxCommunicators];
  };

  JobSegment(UniqueFd fd, const Config& config, int max_communicators, std::shared_ptr<MappingCache> mappings,
             std::shared_ptr<Mapping> head);

  static std::size_t HeadBytes();
  // Of the world communicator (id 0), or of any other.
  static CommunicatorSegment::Layout LayoutOf(int id, int num_ranks, const Config& config);
  static std::size_t RegionBytes(int id, const Config& config);
  static std::size_t RegionOffset(int id, const Config& config);

  const UniqueFd fd_;
  const Config config_;
  const int max_communicators_;
  const std::shared_ptr<MappingCache> mappings_;
  const std::shared_ptr<Mapping> mapping_;  // of the head
  Head* const head_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_JOB_SEGMENT_H_
