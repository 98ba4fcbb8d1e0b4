// Express: the short way for requests of up to 1 MiB of ranks that come at the same time.
//
// Place in the stack: beside the dispatcher, which tries it before anything else for a request whose caller
// stays with it. The ranks meet in the lane (kernels/control/express_lane.h): there is no entry in the table
// or a log, nothing to acknowledge, and nobody to be told. Those who don't meet take the usual way, all of
// them, where errors are found as well. Those who do, take one of two ways:
//
//   copied   each posts its data, and makes its own output from all that were posted. For the smallest, from
//            and to any memory.
//   shared   each posts where its tensor lies in its arena, does its part for all, and waits until all have.
//            For tensors in arenas that belong to no larger group, of which a batch is better made. One
//            that lies in private memory on one rank meets nobody here.
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

#include "kernels/collectives/collective.h"
#include "kernels/control/express_lane.h"
#include "kernels/control/manifest.h"
#include "kernels/engine/communicator.h"
#include "kernels/engine/request.h"
#include "kernels/engine/statistics.h"

namespace tf_smddp {

class Express {
  // A lock for which nobody waits. It takes a third of a mutex's time.
  class Turn {
   public:
    bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
    void unlock() { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

 public:
  // Outlives it.
  explicit Express(Communicator* communicator);

  // A request for which members that are in the lane keep this one waiting: they are late to say whether they
  // meet, or with their parts of the work.
  struct Late {
    Manifest manifest;
    Clock::time_point since;
    std::uint64_t behind = 0;  // bits of those members; 0: there is no such request
  };
  // Any thread.
  Late late() const;

  // One request's try, by any thread. While one is in the lane, there is none of another thread in there.
  class Try {
   public:
    // Posts `request`, of which `manifest` is, and which has `bytes` bytes, and `ticket`, in its epoch; or
    // does nothing, where that is not worth it. The first three outlive it.
    Try(Express* express, const Request& request, const Manifest& manifest, std::uint64_t ticket,
        std::uint64_t bytes);

    // Once. True when all ranks have met, and the output is there: of *cost, how long that took is set. Else
    // nothing has been done, or the job was aborted. Waits for other ranks for 10 µs at most, or 100 after it
    // has been in vain; and for those that it has met until their parts are done.
    bool Run(Cost* cost);

   private:
    // Where a member's tensor lies in its arena.
    struct Whereabouts {
      std::uint64_t input_offset, output_offset;
    };

    bool Finish(const void* const* posted, Cost* cost);
    bool DoPart(const Call& call, const void* const* posted) const;
    template <typename Wait>
    bool Await(const Wait& wait, Clock::duration* waited);

    Express* const express_;
    const Request& request_;
    const Manifest& manifest_;
    const std::uint64_t bytes_;
    bool shared_ = false;
    Whereabouts own_{};  // if it is shared
    Clock::duration patience_{};
    std::unique_lock<Turn> turn_;  // held when it is posted
  };

 private:
  bool Suits(const Request& request, std::uint64_t bytes) const;
  bool MayShare(const Request& request, std::uint64_t bytes) const;
  Clock::duration Patience(std::uint64_t what) const;
  void SetLate(const Late& late);

  Communicator* const communicator_;
  const std::uint64_t most_copied_bytes_, most_shared_bytes_;
  Clock::duration patience_, long_patience_;  // 0: where ranks have no core each
  std::atomic<unsigned> in_vain_{0};          // times in a row
  Turn turn_;
  ExpressLane lane_;  // of whoever has the turn
  mutable std::mutex mu_;
  Late late_{};  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_EXPRESS_H_
