// NcclTransfer: moves tensors that lie in the memory of GPUs, with NCCL.
//
// Place in the stack: a Transfer, above nccl_communicator.h. Its requests are those whose tensors lie on a
// GPU on all ranks, each rank's on another one, and which NCCL supports (SupportOf).
//
// The calls of a batch go out as one group, or a few, on a stream of ours, which waits for what computes the
// inputs. A rank's unit is done when its calls are on the stream. So the batch is complete when those of all
// ranks are, and the next batch begins while they run. The batches of several communicators of ours come one
// after the other on a GPU (nccl_turns.h). When an output is written is known from its order's
// `writes` (kernels/cuda/device.h).
//
// NCCL's communicator is made and proven before the first batch is planned (nccl_start.h); if that fails, the
// engine takes another way. A failed step ends it if a rank has calls on its stream that others will never
// make; the next batch makes another one. Batches that were complete by then are
// waited for first, on all ranks, and succeed (nccl_meeting.h); so it is at the end of the transfer. The end
// of the job ends the communicator at once, and those batches end with an error, since a rank may have died
// in the middle of them. Between hosts, a failed step has no batches that are not complete.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_TRANSFER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives/backend.h"
#include "kernels/collectives/backends/nccl/device_uses.h"
#include "kernels/collectives/backends/nccl/hosts_meeting.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/collectives/backends/nccl/nccl_meeting.h"
#include "kernels/collectives/backends/nccl/nccl_packing.h"
#include "kernels/collectives/backends/nccl/nccl_start.h"
#include "kernels/collectives/backends/nccl/nccl_turns.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/status.h"
#include "kernels/cuda/device.h"

namespace tf_smddp::nccl {

class NcclTransfer : public Transfer {
 public:
  // The members of the host share `meeting`, and the transfers of this rank the others. The first two outlive
  // it.
  NcclTransfer(CommunicatorView communicator, Meeting* meeting, Turns* turns,
               std::shared_ptr<Communicators> communicators);
  // Waits for the streams of all members to come past the batches that were complete; for some ten seconds at
  // most.
  ~NcclTransfer() override;

  // The library of this process: Library::Open, once, for the first path. nullptr if there is none that can
  // be used, and then *status says why. Any thread.
  static const Library* SharedLibrary(const std::string& path, Status* status);

  bool Takes(const ResolvedRequest& request) const override { return request.on_devices; }
  Readiness Prepare(const ResolvedRequest& request) override;
  // Whether Prepare has refused, and this moves nothing any more. Any thread.
  bool refused() const { return refused_.load(std::memory_order_acquire); }
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return done_; }
  bool polls() const override { return starting_ || !done_; }
  bool busy() const override;
  void Complete() override;
  void Watch() override;
  void Abandon(const Status* job_end) override;
  void Renew(MemberMask /*active*/) override { meeting_->Renew(); }
  void Reset() override;

 private:
  class Session;

  bool Report(const Status& error);
  Status Open(cuda::Device* device);
  Status Enqueue();
  void Retire();
  void LoseRetired(const Status& why);

  const CommunicatorView communicator_;
  Meeting* const meeting_;
  const MemberId member_;
  const int num_members_;
  const std::shared_ptr<HostsMeeting> hosts_;  // nullptr: all ranks are on this host
  const std::shared_ptr<Communicators> communicators_;

  // The batch under way.
  std::vector<const ResolvedRequest*> requests_;
  std::size_t enqueued_ = 0;  // so many of them are on the stream
  DeviceUses uses_;           // of those
  bool done_ = true;
  bool starting_ = false;   // the start has not ended for all requests of a batch
  bool exchanges_ = false;  // and the first of them is an all-to-all
  std::atomic<bool> refused_{false};

  Status error_;  // of NCCL, not reported yet
  std::chrono::steady_clock::time_point error_since_;

  std::uint64_t complete_ = 0;                   // so many batches were; the same on all members
  std::uint64_t number_ = 0;                     // of NCCL's communicator in use, or to be made
  std::shared_ptr<Session> session_;             // nullptr until the first batch
  std::unique_ptr<Packer> packer_;               // nullptr: this rank cannot pack
  std::vector<std::weak_ptr<Session>> retired_;  // since a failed step; batches that were complete use them
  std::shared_ptr<cuda::OwnStream> stream_;      // its thread uses the sessions
  Start start_;
  Turns::Line line_;  // last: it uses the stream
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_TRANSFER_H_
