// ControlSegment: the shared memory through which the ranks of one host coordinate.
//
// Place in the stack: the top of control/'s data structures; bootstrap.h hands its descriptor round. Rank 0
// makes it; everyone maps it.
//
//   [ header | abort record | group counter | rank records | small log | launch log | readiness table ]
#ifndef TF_SMDDP_KERNELS_CONTROL_CONTROL_SEGMENT_H_
#define TF_SMDDP_KERNELS_CONTROL_CONTROL_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/doorbell.h"
#include "kernels/control/group_counter.h"
#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

// What a rank publishes about itself.
struct alignas(64) RankRecord {
  Doorbell bell;
  std::atomic<std::uint32_t> left;       // 1 once it has shut down in good order
  std::atomic<std::uint32_t> deferring;  // 1 while it waits for a generation to retire
  // Progress of its staged transfers, in chunks since the start of the job (kernels/collectives/backends).
  alignas(64) std::atomic<std::uint64_t> staged;
  std::atomic<std::uint64_t> combined;
  std::atomic<std::uint64_t> copied_out;
};

class ControlSegment {
 public:
  // Bytes of the segment for `config`.
  static std::size_t Bytes(const Config& config);

  // Rank 0: makes it.
  static Status Create(const Config& config, UniqueFd* fd);

  // All: maps it. Errors: Internal when it was made with other settings.
  static Status Open(int fd, const Config& config, MappingCache* mappings,
                     std::unique_ptr<ControlSegment>* segment);

  AbortRecord& abort() { return fixed_->abort; }
  GroupCounter& groups() { return fixed_->groups; }
  RankRecord& rank(int rank) { return fixed_->ranks[rank]; }
  LaunchLog& small_log() { return small_log_; }
  LaunchLog& launch_log() { return launch_log_; }
  ReadinessTable& table() { return table_; }

 private:
  struct Fixed {
    std::uint64_t magic;
    std::uint64_t bytes;
    AbortRecord abort;
    GroupCounter groups;
    RankRecord ranks[kMaxLocalRanks];
  };
  static_assert(sizeof(Fixed) % 64 == 0, "what follows is aligned to a cache line");

  ControlSegment(std::shared_ptr<Mapping> mapping, const Config& config);

  const std::shared_ptr<Mapping> mapping_;
  Fixed* const fixed_;
  LaunchLog small_log_;
  LaunchLog launch_log_;
  ReadinessTable table_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_CONTROL_SEGMENT_H_
