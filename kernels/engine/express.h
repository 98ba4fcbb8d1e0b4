// Express: the short way for small requests of ranks that come at the same time.
//
// Place in the stack: beside the dispatcher, which tries it before anything else for a request whose caller
// stays with it. The ranks meet in the lane (kernels/control/express_lane.h); then each makes its own output
// from all inputs, and is done: there is no entry in the table or a log, nothing to acknowledge, and nobody
// to be told. Those who don't meet take the usual way, all of them, where errors are found as well.
//
// Waiting here is in vain when the ranks come at different times. After some times in a row a rank tries it
// for every 32nd request only, then for every 64th, and in the end for every 1024th: which ones, follows from
// what they are, so a rank that tries it more often also tries it for those. Then it waits for longer than a
// wake-up takes, or ranks that sleep could not find back.
#ifndef TF_SMDDP_KERNELS_ENGINE_EXPRESS_H_
#define TF_SMDDP_KERNELS_ENGINE_EXPRESS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "kernels/control/express_lane.h"
#include "kernels/control/manifest.h"
#include "kernels/engine/communicator.h"
#include "kernels/engine/request.h"
#include "kernels/engine/statistics.h"

namespace tf_smddp {

class Express {
 public:
  // Outlives it.
  explicit Express(Communicator* communicator);

  // One request's try. Any thread.
  class Try {
   public:
    // Posts `request`, of which `manifest` is, and which has `bytes` bytes, and `ticket`, in its epoch; or
    // does nothing, where that is not worth it. The first two outlive it.
    Try(Express* express, const Request& request, const Manifest& manifest, std::uint64_t ticket,
        std::uint64_t bytes);

    // Once. True when all ranks have met, and the output is there: of *cost, how long that took is set. Else
    // nothing has been done. Waits for other ranks for 10 µs at most, or 100 after it has been in vain.
    bool Run(Cost* cost);

   private:
    Express* const express_;
    const Request& request_;
    const std::uint64_t bytes_;
    Clock::duration patience_{};
    std::unique_lock<std::mutex> lock_;  // held when it is posted
  };

 private:
  bool Suits(const Request& request, std::uint64_t bytes) const;
  Clock::duration Patience(std::uint64_t what) const;

  Communicator* const communicator_;
  const std::uint64_t most_bytes_;
  Clock::duration patience_, long_patience_;  // 0: where ranks have no core each
  std::atomic<unsigned> in_vain_{0};          // times in a row
  std::mutex mu_;
  ExpressLane lane_;  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_EXPRESS_H_
