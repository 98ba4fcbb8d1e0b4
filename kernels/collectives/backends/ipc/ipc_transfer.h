// IpcTransfer: moves tensors that lie on a GPU that the ranks share, through windows on that GPU.
//
// Place in the stack: a Transfer, above windows.h. Its requests are those whose tensors lie on the same GPU
// on all ranks, where all reach the windows of all, and which Supports.
//
// It runs the staged path of each collective (kernels/collectives/collective.h), with kernels of ours on a
// stream of ours, which waits for what computes the inputs. Chunks are dealt to slots (slot_plan.h), and the
// slots of all batches of an incarnation are numbered through; slot s lies at s mod kSlots in each rank's
// windows. A rank puts a step for a slot on its stream when the streams of all ranks have come past the step
// before:
//
//   stage in s   needs copied_out > s - kSlots on all ranks (nobody reads that slot any more)
//   combine s    needs staged > s on all ranks
//   copy out s   needs combined > s on all ranks
//
// So nothing on a stream ever waits for another rank: a rank that dies leaves no kernel that spins, and after
// a failed step the streams come to their ends by themselves. The price is a wake-up of the host between two
// steps. Up to kSlots slots are under way at a time.
//
// Note [Old readers]: after a failed step, a rank's stream may still be reading windows, also for a batch
// that was complete. So each rank counts the failed incarnations that its stream has come past, and nobody
// writes to a window before all have come past all of them.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_IPC_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_IPC_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/collectives/backends/device/device_job.h"
#include "kernels/collectives/backends/device/device_uses.h"
#include "kernels/collectives/backends/ipc/board.h"
#include "kernels/collectives/backends/ipc/slot_plan.h"
#include "kernels/collectives/backends/ipc/windows.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/operation.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/status.h"
#include "kernels/cuda/device.h"

namespace tf_smddp::ipc {

// The most ranks that may share a GPU in this way.
constexpr int kMostRanks = cuda::kMostReduceInputs;

// Whether there is a kernel for the operation. The same on all ranks. Any thread.
bool Supports(const Operation& operation);

class IpcTransfer : public Transfer {
 public:
  // For the members of a communicator of one host, of which this rank is `member`. `board` and `windows`
  // outlive it.
  IpcTransfer(Board* board, const Windows* windows, MemberId member, int num_members, DeviceJob job);
  // Waits for the stream.
  ~IpcTransfer() override;

  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return done_; }
  bool polls() const override { return !done_; }
  void Complete() override;
  void Abandon(const Status* job_end) override;
  void Reset() override;

 private:
  using Method = void (Collective::*)(const Call&, const StagedChunk&) const;
  struct Epoch;

  Status Begin();
  Status StepOnce(bool* moved);
  Status Put(Method method, std::uint64_t slot, Counter counter);
  Status PutMoves(Method method, std::uint64_t slot);
  void End(Status outcome);

  Board* const board_;
  const Windows* const windows_;
  const MemberId member_;
  const int num_members_;
  const DeviceJob job_;

  // Of the batch under way.
  std::vector<const ResolvedRequest*> requests_;
  SlotPlan plan_{kSlotBytes};
  bool begun_ = false;
  bool done_ = true;
  DeviceUses uses_;

  std::uint64_t base_ = 0;                                    // number of the first slot of the batch
  std::uint64_t staged_ = 0, combined_ = 0, copied_out_ = 0;  // slots whose steps are on the stream
  std::uint64_t failed_ = 0;                                  // incarnations
  std::shared_ptr<Epoch> epoch_;

  cuda::Device* device_ = nullptr;
  std::unique_ptr<cuda::OwnStream> stream_;  // last: its thread uses the epochs
};

}  // namespace tf_smddp::ipc

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_IPC_TRANSFER_H_
