// FusionBufferManager: puts ready requests into batches.
//
// Place in the stack: above control/. A batch is sealed by the request that reaches the bucket cap, is the
// last of its group, or asks for it (GroupPart::seals_at_once); or by the first progress thread that finds no
// sealed batch to run, so a request never waits for more requests to come. Nothing is copied into a buffer: a
// "fusion buffer" is a range of entries of the launch log.
#ifndef TF_SMDDP_KERNELS_FUSION_FUSION_BUFFER_MANAGER_H_
#define TF_SMDDP_KERNELS_FUSION_FUSION_BUFFER_MANAGER_H_

#include <cstdint>

#include "kernels/control/group_counter.h"
#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"

namespace tf_smddp {

// Says to which group a ready request belongs.
struct GroupPart {
  std::uint64_t ticket = 0;
  std::uint32_t num_params = 0;  // 0: the request is in no group
  bool seals_at_once = false;    // the caller submits no other request before this one has ended
};

class FusionBufferManager {
 public:
  FusionBufferManager(LaunchLog* log, GroupCounter* groups, std::uint64_t bucket_cap_bytes)
      : log_(log), groups_(groups), bucket_cap_bytes_(bucket_cap_bytes) {}

  // Appends a ready request of `bytes` bytes. Only one rank calls it for each request: the one that made it
  // ready. Returns false if the log is closed, because the incarnation or the job has failed. Any thread.
  bool Add(Place place, std::uint64_t bytes, const GroupPart& group);

  // Counts a ready request that is not appended to this log (a small one), so that the last request of its
  // group still seals the batch. Returns whether it has sealed a batch. Any thread.
  bool AddElsewhere(const GroupPart& group);

  // Seals the open batch. Returns false when there is none. Any thread.
  bool SealOpen() { return log_->SealOpen(); }

 private:
  LaunchLog* const log_;
  GroupCounter* const groups_;
  const std::uint64_t bucket_cap_bytes_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_FUSION_FUSION_BUFFER_MANAGER_H_
