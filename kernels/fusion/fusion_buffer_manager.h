// FusionBufferManager: puts ready requests into batches.
//
// Place in the stack: above control/. A batch is sealed by whoever appends the request that reaches the
// bucket cap, completes its group, or stands alone; or by the first comm thread that runs out of sealed work:
// a request never waits for company. Nothing is packed: a "fusion buffer" is a range of the launch log.
#ifndef TF_SMDDP_KERNELS_FUSION_FUSION_BUFFER_MANAGER_H_
#define TF_SMDDP_KERNELS_FUSION_FUSION_BUFFER_MANAGER_H_

#include <cstdint>

#include "kernels/control/group_counter.h"
#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"

namespace tf_smddp {

// Which group a ready request belongs to.
struct GroupPart {
  std::uint64_t ticket = 0;
  std::uint32_t num_params = 0;  // 0: it is in no group
  bool alone = false;            // and its caller submits nothing else before it has ended
};

class FusionBufferManager {
 public:
  FusionBufferManager(LaunchLog* log, GroupCounter* groups, std::uint64_t bucket_cap_bytes)
      : log_(log), groups_(groups), bucket_cap_bytes_(bucket_cap_bytes) {}

  // Appends a ready request of `bytes` bytes. Called once in all ranks for each request, by the rank that
  // arrived last. False: the log is closed (the job was aborted). Any thread.
  bool Add(Place place, std::uint64_t bytes, const GroupPart& group);

  // Counts a ready request that went another way (a small one), so that its group's batch is sealed all the
  // same. True when that has sealed something. Any thread.
  bool AddElsewhere(const GroupPart& group);

  // Seals what is open, if anything. True when it did. Any thread.
  bool SealOpen() { return log_->SealOpen(); }

 private:
  LaunchLog* const log_;
  GroupCounter* const groups_;
  const std::uint64_t bucket_cap_bytes_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_FUSION_FUSION_BUFFER_MANAGER_H_
