// Statistics: what this rank's collectives have cost, since init() or the last reset.
//
// Place in the stack: local to a rank; no shared memory. docs/watching.md says what each figure means, and
// has the form of the JSON text.
#ifndef TF_SMDDP_KERNELS_ENGINE_WATCH_STATISTICS_H_
#define TF_SMDDP_KERNELS_ENGINE_WATCH_STATISTICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/types.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

// The cost of one request on this rank.
struct Cost {
  Clock::duration
      waiting{};  // from submission until its data moved, and, while they did, for peers that were behind
  Clock::duration moving{};   // reading, combining and writing data
  bool staged = false;        // through windows, since some rank's tensor lay in private memory
  bool in_place = false;      // the result took the place of the input
  bool small = false;         // without a batch, by the rank that arrived last
  bool on_devices = false;    // where the tensors lay, on devices
  Clock::time_point begun{};  // when this rank began with its batch; not set when it had nothing to do
};

// The counts of one kind of collective.
struct CollectiveStats {
  std::uint64_t calls = 0;   // that have completed
  std::uint64_t errors = 0;  // that have ended with an error instead
  std::uint64_t bytes = 0;   // of this rank's inputs; this and what follows is about `calls`
  std::uint64_t staged_bytes = 0;
  std::uint64_t nccl_bytes = 0;      // of those that NCCL moved
  std::uint64_t in_place_bytes = 0;  // of those whose result took the place of the input
  std::uint64_t small_calls = 0;     // without a batch
  double waiting_seconds = 0;
  double moving_seconds = 0;

  void Add(const CollectiveStats& other);
  void Subtract(const CollectiveStats& other);
};

using StatsByKind = std::array<CollectiveStats, kNumCollectiveKinds>;

void AddByKind(const StatsByKind& from, StatsByKind* to);

// The counts of one communicator.
struct CommunicatorStats {
  CommunicatorId id = kWorld;
  std::vector<int> ranks;
  StatsByKind collectives;
  std::uint64_t batches = 0;
  std::uint64_t batch_bytes = 0;  // of this rank's inputs, in all of them
  std::uint64_t deferred = 0;     // requests that had to wait for an earlier use of their key to end
  std::uint64_t failures = 0;     // incarnations that have failed
  std::uint64_t steps = 0;        // groups of several tensors that have completed
  std::uint64_t last_steps = 0;   // of those, at whose first tensor this rank was the last to arrive
  double step_seconds = 0;        // from the end of one of them to that of the next, on average
  double blocked_seconds = 0;     // see CommunicatorCounters::Blocked
};

// The counts of a rank.
struct EngineStats {
  int rank = 0;
  int size = 1;
  StatsByKind collectives;  // of all communicators, also those that are gone
  std::vector<CommunicatorStats> communicators;
  std::uint64_t arena_bytes = 0;  // 0 in a job of one rank
  std::uint64_t arena_used_bytes = 0;
  std::uint64_t arena_peak_bytes = 0;  // the most that was in use
  std::uint64_t arena_refused = 0;     // allocations for which it had no room
};

// The counters of one communicator on this rank. All methods: any thread.
class CommunicatorCounters {
 public:
  void Completed(CollectiveKind kind, std::uint64_t bytes, const Cost& cost);
  void Failed(CollectiveKind kind);
  // Counts the time in which this rank reduced a small request for all ranks.
  void Moved(CollectiveKind kind, Clock::duration time);
  void RanBatch(std::uint64_t bytes);
  void Deferred() { Add(&deferred_, 1); }
  void IncarnationFailed();

  // A request that was `submitted` then has completed `now`. The rank is *blocked* from the submission of the
  // last tensor of a group to the end of the group, since a step has nothing else to compute by then; and
  // from the submission of any other request to its end. Times that overlap count once. `arrived_last`: all
  // other ranks had submitted it before this one. In a group the first tensor counts, since exactly one rank
  // is the last to arrive there, in whatever order each submits the tensors.
  // Returns the number of the step that has ended with it, from 1 on since the communicator was made, or 0.
  std::uint64_t Blocked(const Pairing& pairing, Clock::time_point submitted, Clock::time_point now,
                        bool arrived_last = false);

  // The steps since the communicator was made.
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

  // Sets *stats to the counts since the last reset, except its id and ranks; `reset` makes this call a reset.
  // Nothing is lost or counted twice, but a request that ends meanwhile may be counted in parts.
  void Take(bool reset, CommunicatorStats* stats);

 private:
  using Counter = std::atomic<std::uint64_t>;

  struct OfKind {
    Counter calls{0}, errors{0}, bytes{0}, staged_bytes{0}, nccl_bytes{0}, in_place_bytes{0}, small_calls{0},
        waiting_ns{0}, moving_ns{0};
  };

  static void Add(Counter* counter, std::uint64_t value) {
    counter->fetch_add(value, std::memory_order_relaxed);
  }
  static CollectiveStats Read(const OfKind& of);
  OfKind& Of(CollectiveKind kind) { return kinds_[static_cast<std::size_t>(kind)]; }

  // Since the communicator was made.
  std::array<OfKind, kNumCollectiveKinds> kinds_;
  Counter batches_{0}, batch_bytes_{0}, deferred_{0}, failures_{0}, steps_{0}, last_steps_{0}, blocked_ns_{0};

  struct Group {
    std::uint32_t completed = 0;
    bool arrived_last = false;  // at the first tensor
    Clock::time_point last_submitted;
  };
  std::mutex groups_mu_;
  std::unordered_map<std::uint64_t, Group> groups_;  // by ticket, not complete; guarded by groups_mu_
  Clock::time_point blocked_until_;                  // guarded by groups_mu_
  Clock::time_point first_step_, last_step_;         // since the last reset; guarded by groups_mu_

  std::mutex mu_;
  CommunicatorStats before_;  // at the last reset; guarded by mu_
};

// Returns one line of JSON.
std::string ToJson(const EngineStats& stats);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_WATCH_STATISTICS_H_
