// Membership: all that one rank runs for one communicator.
#ifndef TF_SMDDP_KERNELS_ENGINE_MEMBERSHIP_H_
#define TF_SMDDP_KERNELS_ENGINE_MEMBERSHIP_H_

#include <memory>
#include <utility>

#include "kernels/engine/comm_thread.h"
#include "kernels/engine/communicator.h"
#include "kernels/engine/completion_thread.h"
#include "kernels/engine/dispatcher.h"
#include "kernels/engine/failure_memory.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/engine/statistics.h"
#include "kernels/engine/timeline.h"

namespace tf_smddp {

class Membership {
 public:
  // Starts its comm thread. The others outlive it.
  Membership(std::unique_ptr<Communicator> communicator, CompletionThread* completions, FailureMemory* memory,
             StallWatch* stalls, std::shared_ptr<CommunicatorCounters> counters, Timeline* timeline)
      : communicator_(std::move(communicator)),
        counters_(std::move(counters)),
        dispatcher_(communicator_.get(), completions, memory, stalls, counters_.get(), timeline),
        comm_(communicator_.get(), &dispatcher_) {}

  Communicator& communicator() { return *communicator_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  CommThread& comm() { return comm_; }

 private:
  const std::unique_ptr<Communicator> communicator_;
  const std::shared_ptr<CommunicatorCounters> counters_;
  Dispatcher dispatcher_;
  CommThread comm_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_MEMBERSHIP_H_
