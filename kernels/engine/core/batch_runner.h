// BatchRunner: does this rank's part of one batch after the other.
//
// Place in the stack: between progress.h and the transfers of the backends (kernels/collectives/backend.h).
// It never waits.
//
// A batch: each request is resolved, and given to the first transfer that can move it. A tensor of this
// rank that has stayed on a GPU is first copied to the host if another rank's tensor is there, or if the
// transfer for GPUs has refused it; it is staged from there. Between hosts nothing is staged, so it is put
// into the arena then, and the other ranks of the host wait for that. The transfers say how many units of
// work the batch has, on all ranks together. The rank that does the last unit ends the batch as complete;
// after a failure the ranks try to end it as aborted. The first end counts for all (Note [One end]).
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_BATCH_RUNNER_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_BATCH_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/collectives/transfer.h"
#include "kernels/engine/core/failures.h"
#include "kernels/engine/core/log_reader.h"
#include "kernels/engine/core/member_state.h"
#include "kernels/engine/job/communicator.h"

namespace tf_smddp {

class BatchRunner {
 public:
  using Requests = std::vector<PendingTable::Shared>;

  // Both outlive it.
  BatchRunner(MemberState* state, Failures* failures);

  // Whether a batch is under way.
  bool running() const { return batch_state_ != nullptr; }

  // Begins with `batch`. Nothing may be running. Nothing is afterwards, if the job or the incarnation has
  // failed.
  void Start(LogReader::Batch batch);

  // Does one piece of the batch, if there is one to do now. True when there was, or when the batch has ended;
  // appends the requests of a batch that has ended as complete to *done. Only when running().
  bool Step(Requests* done);

  // After the launch log was closed: ends the batch that is under way as aborted, unless it has ended as
  // complete. Then appends its requests to *done.
  void End(Requests* done);
  // Ends a batch that was never started in the same way.
  void EndUnstarted(const LogReader::Batch& batch, Requests* done);

  // Whether Step may have something to do soon, of which no other rank will tell.
  bool polls() const;

  // See Transfer.
  bool busy() const;
  void Watch() {
    for (const auto& transfer : transfers_) transfer->Watch();
  }
  void Abandon(const Status* job_end) {
    for (const auto& transfer : transfers_) transfer->Abandon(job_end);
  }
  void Leave() {
    for (const auto& transfer : transfers_) transfer->Leave();
  }
  void Renew(MemberMask active) {
    for (const auto& transfer : transfers_) transfer->Renew(active);
  }

  // All ranks have let go of the failed incarnation: the next one starts afresh.
  void Reset() {
    for (const auto& transfer : transfers_) transfer->Reset();
  }

 private:
  struct Item {
    PendingTable::Shared pending;
    ResolvedRequest resolved;
    bool settled = false;  // resolved, with all tensors where the transfer needs them
    Transfer* transfer = nullptr;
    // Between hosts, a request whose output this rank could not allocate runs all the same, into memory that
    // is thrown away, since the other ranks need this rank's part. It fails here when they have theirs.
    Status failed;
    std::vector<std::byte> thrown_away;
  };

  bool ResolveAll(const LogReader::Batch& batch);
  bool ResolveOne(Item* item);
  bool Settle(Item* item);
  Status BounceLate(Item* item);
  Status ThrowAway(Item* item, void** output);
  Status BounceOutput(const ResolvedRequest& resolved, PendingRequest* pending, void** output);
  bool Plan();
  void Complete(Requests* done);
  void Drop();
  Transfer::Readiness Prepare(const ResolvedRequest& resolved);
  bool ChooseTransfer(Item* item);
  bool StepTransfers();
  void TakeAll(const LogReader::Batch& batch, Requests* done);
  void FailAlone(const Item& item);
  void FailBatch(const Item& item, const Status& status);
  void Charge();
  bool IsStaged(const Item& item) const;
  void LogEnd() const;

  MemberState* const state_;
  Failures* const failures_;
  Communicator* const communicator_;
  LocalGroup* const group_;
  const bool wired_;
  const std::vector<std::unique_ptr<Transfer>>& transfers_;  // in the order in which they run

  // The batch under way.
  LogReader::Batch batch_;
  std::vector<Item> items_;
  BatchState* batch_state_ = nullptr;
  bool planned_ = false;
  Clock::time_point no_memory_until_;  // for an output; then it is tried again
  std::uint64_t total_units_ = 0;
  Clock::time_point begin_;
  Clock::duration moving_{};
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_BATCH_RUNNER_H_
