// StallReport: writes the text about a stall: which requests wait, for which ranks, what those ranks do, and
// the likely cause.
//
// Place in the stack: below stall_watch.h, which fills in the facts. It is pure: no clock, no system call.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_STALL_REPORT_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_STALL_REPORT_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/rank_set.h"
#include "kernels/control/manifest.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

// A request of this rank that waits for other ranks, or for a device.
struct StalledRequest {
  Manifest manifest;
  CommunicatorId communicator = kWorld;
  bool ready = false;  // all ranks have submitted it, but its data do not move
  std::string device;  // on a stream of which its calls of NCCL or copies are; "" if there are none
};

// A rank that is waited for.
struct AbsentRank {
  int rank = 0;
  bool on_this_host = true;              // if not, only `works` is known
  bool works = false;                    // a rank of another host: it has computed lately
  pid_t pid = 0;                         // as this process sees it; 0 when it cannot
  char state = 0;                        // of the process, as /proc has it; 0 when unknown
  double cpu_share = -1;                 // of one core, lately; -1 when unknown
  bool submitted = false;                // ever
  Manifest last;                         // its last submission, if so
  CommunicatorId communicator = kWorld;  // of that
  double last_seconds = 0;               // how long ago that was
  std::uint64_t pending = 0;             // its requests that have not ended
  RankSet waits_for;                     // the ranks that it says it waits for; itself: for its device
};

struct StallReport {
  int rank = 0;                          // of the report's writer
  double seconds = 0;                    // how long the oldest of `requests` has waited
  std::vector<StalledRequest> requests;  // oldest first
  std::vector<AbsentRank> absent;        // ascending
  double timeout_seconds = 0;            // 0: never
};

// "12.5 s"; whole seconds from 10 on.
std::string DescribeSeconds(double seconds);

// One line.
std::string DescribeStall(const StallReport& report);

// A request that has not ended, and for whom it waits.
struct WaitingRequest {
  StalledRequest request;
  Clock::time_point submitted;
  RankSet members;             // the ranks of its communicator
  RankSet missing;             // the ranks that it waits for, or may; itself: for its device
  Clock::duration timeout{0};  // Request::timeout
};

// Returns the requests of this rank that were submitted at `before` or earlier.
using CollectWaitingRequests = std::function<std::vector<WaitingRequest>(Clock::time_point before)>;

inline RankSet MissingOf(const std::vector<WaitingRequest>& waiting) {
  RankSet missing;
  for (const WaitingRequest& each : waiting) missing |= each.missing;
  return missing;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_STALL_REPORT_H_
