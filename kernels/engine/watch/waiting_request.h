// WaitingRequest: a request that has not ended, and for whom it waits.
//
// Place in the stack: below stall_watch.h, which decides by it.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_WAITING_REQUEST_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_WAITING_REQUEST_H_

#include <functional>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/rank_set.h"
#include "kernels/engine/watch/stall_report.h"

namespace tf_smddp {

struct WaitingRequest {
  StalledRequest request;
  Clock::time_point submitted;
  RankSet members;  // the ranks of its communicator
  RankSet missing;  // the ranks that it waits for, or may; itself: for its device
};

// Returns the requests of this rank that were submitted at `before` or earlier.
using CollectWaitingRequests = std::function<std::vector<WaitingRequest>(Clock::time_point before)>;

inline RankSet MissingOf(const std::vector<WaitingRequest>& waiting) {
  RankSet missing;
  for (const WaitingRequest& each : waiting) missing |= each.missing;
  return missing;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_WAITING_REQUEST_H_
