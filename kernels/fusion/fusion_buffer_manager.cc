#include "kernels/fusion/fusion_buffer_manager.h"

#include "kernels/fusion/bucket.h"

namespace tf_smddp {

bool FusionBufferManager::Add(Place place, std::uint64_t bytes, const GroupPart& group) {
  const bool seals =
      group.seals_at_once || (group.num_params > 0 && groups_->CountReady(group.ticket, group.num_params));
  return log_->Append(place.index(), [&](std::uint64_t open_units) {
    return OpenAfter(open_units, bytes, seals, bucket_cap_bytes_);
  });
}

bool FusionBufferManager::AddElsewhere(const GroupPart& group) {
  return group.num_params > 0 && groups_->CountReady(group.ticket, group.num_params) && log_->SealOpen();
}

}  // namespace tf_smddp
