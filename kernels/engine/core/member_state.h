// MemberState: what the parts of one membership share (membership.h).
//
// Place in the stack: local to a rank; below submission.h, failures.h, delivery.h and progress.h, which work
// on it.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_MEMBER_STATE_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_MEMBER_STATE_H_

#include <memory>
#include <string>

#include "kernels/engine/core/absence.h"
#include "kernels/engine/core/completion_thread.h"
#include "kernels/engine/core/failure_memory.h"
#include "kernels/engine/core/pending.h"
#include "kernels/engine/core/sequencer.h"
#include "kernels/engine/devices/gpu_places.h"
#include "kernels/engine/job/communicator.h"
#include "kernels/engine/watch/stall_watch.h"
#include "kernels/engine/watch/statistics.h"
#include "kernels/engine/watch/timeline.h"

namespace tf_smddp {

struct MemberState {
  // All outlive it.
  MemberState(Communicator* communicator, CompletionThread* completions, FailureMemory* memory,
              StallWatch* stalls, CommunicatorCounters* counters, Timeline* timeline)
      : communicator(communicator),
        group(&communicator->group()),
        completions(completions),
        memory(memory),
        stalls(stalls),
        counters(counters),
        timeline(timeline),
        gpus(communicator),
        pending(/*in_turn=*/communicator->wired()),
        sequencer(memory, &communicator->group().segment().failure()) {}

  Communicator* const communicator;
  LocalGroup* const group;  // of the communicator
  CompletionThread* const completions;
  FailureMemory* const memory;
  StallWatch* const stalls;
  CommunicatorCounters* const counters;
  Timeline* const timeline;
  GpuPlaces gpus;
  PendingTable pending;
  Sequencer sequencer;
  Absence absence;

  // Whether a request of this rank, which has entered the table, has met its peers. Any thread.
  bool IsReady(const PendingRequest& request) const {
    return group->table().Participants(request.slot, request.ticket) != 0;
  }

  std::string RankName() const { return "rank " + std::to_string(communicator->job().rank()); }
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_MEMBER_STATE_H_
