// LaunchOrder: brings the ready requests of a communicator into one order, and into batches, on all ranks.
//
// Place in the stack: above control/. On one host the order is that of the appends to the launch log. A batch
// is sealed by the request that reaches the bucket cap or that stands alone, or by the first rank that runs
// out of sealed work: a request never waits for company. Nothing is packed: a batch is a range of the log.
#ifndef TF_SMDDP_KERNELS_FUSION_LAUNCH_ORDER_H_
#define TF_SMDDP_KERNELS_FUSION_LAUNCH_ORDER_H_

#include <cstdint>

#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"
#include "kernels/fusion/bucket.h"

namespace tf_smddp {

class LaunchOrder {
 public:
  LaunchOrder(LaunchLog* log, std::uint64_t bucket_cap_bytes)
      : log_(log), bucket_cap_bytes_(bucket_cap_bytes) {}

  // Launches a ready request of `bytes` bytes. `alone`: its batch need not wait for more requests. The rank
  // that arrived last calls it, once for all ranks. When the log is closed it does nothing: the incarnation
  // has failed, and each rank delivers the error. Any thread.
  void Launch(Place place, std::uint64_t bytes, bool alone) {
    log_->Append(place.index(), [&](std::uint64_t open_units) {
      return OpenAfter(open_units, bytes, /*seals=*/alone, bucket_cap_bytes_);
    });
  }

  // Announces a ready request whose results are in place already. Otherwise as Launch.
  void AnnounceDone(Place place) { log_->AppendDone(place.index()); }

  // Seals the open batch. True when there was one. Any thread.
  bool SealOpen() { return log_->SealOpen(); }

 private:
  LaunchLog* const log_;
  const std::uint64_t bucket_cap_bytes_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_FUSION_LAUNCH_ORDER_H_
