// LaunchOrder: brings the ready requests of a communicator into one order, and into batches, on all ranks.
//
// Place in the stack: above control/. The order of a host is that of the appends to its launch log. On one
// host, whoever finds a request ready appends it. With several hosts, whoever finds that all ranks of its
// host have arrived reports it to the host's relay (kernels/engine/hosts/relay.h), and the relay appends in
// the order of all hosts, and seals its batches where the head says. On one host, a batch is sealed by the
// request that reaches the bucket cap or that stands alone, or by the first rank that runs out of sealed
// work: a request never waits for company where it could begin. Nothing is packed: a batch is a range of the
// log.
//
// Note [A batch that fills]: where a device does the work, a rank is out of work for it when fewer than two
// batches are there still, or when no request can come to the open batch (Progress::MoreMayCome). Before
// that, the open batch could not begin anyway, since a device does its batches one after the other.
// TensorFlow puts a whole backward pass on a GPU while that computes its first layers, so batches of a few
// tensors each would be the rule. This cannot deadlock, and each rank decides for itself: the batches that it
// counts have all their calls on the devices of all ranks, so they end without a request that is still to be
// sealed, and their end wakes the rank (Transfer::busy). If one rank holds back, another one may seal.
#ifndef TF_SMDDP_KERNELS_FUSION_LAUNCH_ORDER_H_
#define TF_SMDDP_KERNELS_FUSION_LAUNCH_ORDER_H_

#include <cstdint>

#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"
#include "kernels/fusion/bucket.h"

namespace tf_smddp {

class LaunchOrder {
 public:
  // `log` is the launch log, and `reports` the log that the relay reads.
  LaunchOrder(LaunchLog* log, LaunchLog* reports, std::uint64_t bucket_cap_bytes)
      : log_(log), reports_(reports), bucket_cap_bytes_(bucket_cap_bytes) {}

  // Launches a ready request of `bytes` bytes. `alone`: its batch need not wait for more requests. The rank
  // that arrived last calls it, once for all ranks. When the log is closed it does nothing: the incarnation
  // has failed, and each rank delivers the error. Any thread.
  void Launch(Place place, std::uint64_t bytes, bool alone) {
    log_->Append(place.index(), [&](std::uint64_t open_units) {
      return OpenAfter(open_units, bytes, /*seals=*/alone, bucket_cap_bytes_);
    });
  }

  // Launches a ready request where the relay says; `seals`: its batch ends with it. Progress thread of the
  // relay.
  void LaunchInTurn(Place place, bool seals) {
    log_->Append(place.index(), [seals](std::uint64_t open) { return seals ? 0 : open + 1; });
  }

  // Reports to the relay a request at which all ranks of this host have arrived. Any thread.
  void ReportHostReady(Place place) { reports_->AppendDone(place.index()); }

  // Announces a ready request whose results are in place already. Otherwise as Launch.
  void AnnounceDone(Place place) { log_->AppendDone(place.index()); }

  // Seals the open batch. True when there was one. Any thread.
  bool SealOpen() { return log_->SealOpen(); }

 private:
  LaunchLog* const log_;
  LaunchLog* const reports_;
  const std::uint64_t bucket_cap_bytes_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_FUSION_LAUNCH_ORDER_H_
