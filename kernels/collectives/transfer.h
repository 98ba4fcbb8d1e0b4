// Transfer: one way to move the data of a batch. A backend (backend.h) has one or more.
//
// Place in the stack: the interface between the engine's batch runner (kernels/engine/core/batch_runner.h)
// and backends/. A transfer never waits: Step does what can be done now, so any thread may drive it, and an
// abort is noticed between two steps.
//
// Life, once for each batch that has requests for it: Prepare -> Plan -> Step, until done() -> Complete, when
// all ranks have done their part -> Plan for the next batch. Abandon and then Reset, between batches or in
// the middle of one, end an incarnation; in between, one rank of the host calls Renew. One thread at a time
// calls all of it.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_TRANSFER_H_

#include <cstdint>
#include <vector>

#include "kernels/collectives/batch_state.h"
#include "kernels/collectives/resolved_request.h"
#include "kernels/common/status.h"

namespace tf_smddp {

class Transfer {
 public:
  virtual ~Transfer() = default;

  // Whether it moves this request, if no transfer before it takes it. It follows from what all ranks see in
  // the table, so all of them choose alike.
  virtual bool Takes(const ResolvedRequest& request) const = 0;

  // Whether it can plan a batch with this request, which it takes. kRefused is for tensors on devices: it
  // cannot move such ones any more. All ranks find so for the same request, their keepers say it (backend.h),
  // and the engine resolves the request again.
  enum class Readiness { kReady, kNotYet, kRefused };
  virtual Readiness Prepare(const ResolvedRequest& /*request*/) { return Readiness::kReady; }

  // Takes the requests of the next batch that this transfer is to move; all ranks get the same ones in the
  // same order. They, the tensors and `batch` stay valid until done(), or until Reset. Returns the number of
  // *units* of work that all ranks together do for them, which is equal on all ranks; the batch is complete
  // when all units are done.
  virtual std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) = 0;

  struct Progress {
    bool moved = false;       // something was done; else other ranks are behind
    bool unit_done = false;   // and it completed a unit
    bool peers_wait = false;  // and other ranks may be waiting for it
  };
  // Moves one piece, of one chunk at most. Only when not done().
  virtual Progress Step() = 0;

  // Whether this rank has nothing left to do for the batch. Other ranks may.
  virtual bool done() const = 0;

  // Whether Step may have something to do soon, of which no other rank will tell. It is called again within
  // some ten microseconds then.
  virtual bool polls() const { return false; }

  // Whether a device has so much to do for batches that have ended as complete that the next one would only
  // wait there. That ends by itself, whatever this rank or others do, and then CommunicatorView::wake is
  // called.
  virtual bool busy() const { return false; }

  // The batch has ended as complete: all units of all ranks are done.
  virtual void Complete() {}

  // Looks for errors of what goes on after the end of a batch. It is called now and then.
  virtual void Watch() {}

  // The batch under way, if there is one, will never be complete. `job_end`: the error with which the job has
  // ended; nullptr if only the incarnation has. Work on a device ends then, or in Reset.
  virtual void Abandon(const Status* /*job_end*/) {}

  // This rank takes part in no more batches of this incarnation. The others go on.
  virtual void Leave() {}

  // The next incarnation begins: renews what the members of this host share, for `active` ones. Nobody uses
  // it meanwhile.
  virtual void Renew(MemberMask /*active*/) {}

  // Drops what is under way and starts afresh; all ranks do before the next Plan of any. The tensors are not
  // touched any more.
  virtual void Reset() = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_TRANSFER_H_
