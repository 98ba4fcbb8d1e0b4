// Express: the short way for small requests of ranks that arrive at the same time.
//
// Place in the stack: submission.h tries it before anything else, for requests of up to 16 KiB in host
// memory whose caller drives the progress. The ranks meet in the lane (kernels/control/express_lane.h): each
// posts its data, and makes its own output from all posts. Nothing is entered in the table or a log,
// acknowledged, or rung for. If the ranks do not meet, none of them does, and all take the usual way, where
// errors are found as well.
//
// A rank waits in the lane for 10 µs. That is wasted when the ranks arrive at different times. So after
// kMaxMisses misses in a row, only one request in 2^k enters; k grows with each further miss. Which requests
// enter follows from their manifests and tickets: a rank that tries more often also tries those that the
// other ranks try. These tries last 100 µs, longer than a wake-up, so that ranks that sleep can find back.
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
  // A lock that is only ever tried. It takes a third of a mutex's time.
  class Turn {
   public:
    bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
    void unlock() { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

 public:
  // `communicator` outlives it.
  explicit Express(Communicator* communicator);

  // A request that waits in the lane for members that were stopped while they decided whether they stay.
  struct Late {
    Manifest manifest;
    Clock::time_point since;
    std::uint64_t behind = 0;  // mask of those members; 0: no request waits so
  };
  // Any thread.
  Late late() const;

  // One request's try. While it lives, no other thread of this rank tries.
  class Try {
   public:
    // Whether `request`, with `manifest`, `ticket` and `bytes` bytes, enters the lane this time.
    Try(Express* express, const Request& request, const Manifest& manifest, std::uint64_t ticket,
        std::uint64_t bytes);

    // Posts the request. Other ranks can read it from here on. Does nothing when it does not enter.
    void Post();

    // Waits for the other ranks. True when all have met, and the output is written: sets *cost. False when
    // none meets, or the job was aborted: nothing has been done. Once, after Post.
    bool Finish(Cost* cost);

   private:
    bool Meet(const void** posted, Cost* cost);

    Express* const express_;
    const Request& request_;
    const Manifest& manifest_;
    const std::uint64_t bytes_;
    std::uint64_t key_ = 0;
    Clock::duration patience_{};
    std::unique_lock<Turn> turn_;  // held when it enters
  };

 private:
  bool Suits(const Request& request, std::uint64_t bytes) const;
  Clock::duration Patience(std::uint64_t key) const;
  void SetLate(const Late& late);

  LocalGroup* const group_;
  const std::uint64_t max_bytes_;
  Clock::duration patience_, long_patience_;  // 0 where the ranks have no core each
  std::atomic<unsigned> misses_{0};           // in a row
  Turn turn_;
  ExpressLane lane_;  // of whoever has the turn
  mutable std::mutex mu_;
  Late late_{};  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_EXPRESS_H_
