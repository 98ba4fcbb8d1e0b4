// PendingTable: this rank's requests between submission and completion.
//
// Place in the stack: local to a rank; no shared memory. A request is either entered (by place in the
// readiness table) or deferred (its place serves another ticket, or its input is being copied).
//
// Note [Places between hosts]: two hosts must not claim the same place of their tables for different tickets,
// or each would wait for the other for ever.
//   - A request that does not pair by a group's ticket waits for the one before it of its key, on every rank.
//   - Groups of one step have no order. So there are more places for them than a step has groups under way at
//     once: 4,096 for the first tensors of groups, 2,048 for the second, and so on. If that does not do, the
//     head of the hosts sees the two tickets, and fails the step (kernels/control/host_order.h).
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_PENDING_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_PENDING_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "kernels/control/manifest.h"
#include "kernels/control/readiness_table.h"
#include "kernels/engine/devices/bounce_buffer.h"
#include "kernels/engine/request.h"
#include "kernels/engine/watch/statistics.h"

namespace tf_smddp {

struct PendingRequest {
  std::uint64_t id = 0;
  Request request;
  Manifest manifest;
  std::uint32_t slot = 0;
  std::uint64_t ticket = 0;  // the group's, the sequence number, or the name's ordinal
  std::uint64_t incarnation = 0;
  bool open = true;         // the incarnation had begun when it was submitted
  std::uint64_t bytes = 0;  // of the input
  Clock::time_point submitted;
  Cost cost;  // set by the progress thread
  Cell cell = {};
  void* span = nullptr;  // in the arena: the copy of a small tensor in private memory, or of `input_bounce`
  // Where the CPU may not touch the request's buffers; with Reach::kAllOutputs it is the same for both.
  std::shared_ptr<BounceBuffer> input_bounce, output_bounce;
  void* splits = nullptr;  // in the arena: alltoall's, one 64-bit number for each member
  std::uint64_t splits_bytes = 0;

  std::uint32_t generation = 0;  // of the slot, by the ticket

  // When this rank entered it, all others of this host had; written before it is launched.
  std::atomic<bool> completed_host{false};

  bool under_way = false;  // in a batch, which uses its memory; guarded by the table's mutex

  // Whether other ranks may read what `cell` names.
  bool placed() const { return input_bounce == nullptr || input_bounce->filled(); }

  Place place() const { return {slot, generation}; }
};

// Why the copy of `pending`'s input has failed.
Status FillError(const PendingRequest& pending);

class PendingTable {
 public:
  // `in_turn`: see Note [Places between hosts].
  explicit PendingTable(bool in_turn) : in_turn_(in_turn) {}

  // The pointer is shared, because an abort may take a request out of the table while the thread that
  // submitted it still enters it.
  using Shared = std::shared_ptr<PendingRequest>;

  enum class Added { kEntered, kDeferred, kTwin, kClosed };

  // Adds `pending` to its place (kEntered). If an earlier request of this rank is there or waits for it, or
  // if it is not `ready` (its incarnation has not begun, or its input is being copied), adds it behind the
  // deferred requests (kDeferred). Does not add it if the same ticket is in that place already (kTwin), or
  // after Close or Refuse (kClosed). Any thread.
  Added Add(const Shared& pending, bool ready);

  // Moves the request in `place` to the end of the deferred ones. Any thread.
  void Defer(Place place);

  // Takes the request in `place`; nullptr when there is none. Progress thread.
  Shared Take(Place place);

  // The request in `place`, which stays there; nullptr when there is none. Any thread.
  Shared Find(Place place);
  // As Find, for a batch that begins. Progress thread.
  Shared FindForBatch(Place place);

  // Moves the first deferred request after `*cursor` (0: from the start) whose place is free, and that is
  // placed(), into that place, and returns it; nullptr when there is none. Progress thread.
  Shared EnterDeferred(std::size_t* cursor);

  bool has_deferred() const { return num_deferred_.load(std::memory_order_seq_cst) != 0; }

  // Returns the number of pending requests. Any thread.
  std::size_t size() {
    std::lock_guard<std::mutex> lock(mu_);
    return entered_.size() + deferred_.size();
  }
  // Returns the bytes of the inputs of all pending requests. Any thread.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  // Takes all requests of `incarnation`.
  std::vector<Shared> TakeIncarnation(std::uint64_t incarnation);

  // Takes all requests, or all but those of a batch that is under way, and refuses later ones with `reason`.
  // Any thread.
  std::vector<Shared> Close(const Status& reason, bool but_under_way = false);

  // Refuses later requests, and keeps those that are there.
  void Refuse(const Status& reason);
  // Ends what Refuse began.
  void Admit();
  Status refusal();

  // Blocks until nothing is pending, or until `patience` has passed. True when nothing is pending.
  bool WaitEmpty(std::chrono::milliseconds patience);

  // Calls `body` with each pending request, while it holds the lock.
  template <typename Body>
  void ForEach(Body body) {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [place, pending] : entered_) body(*pending, /*entered=*/true);
    for (const Shared& pending : deferred_) body(*pending, /*entered=*/false);
  }

 private:
  using Entered = std::unordered_map<std::uint64_t, Shared>;

  Shared Remove(Entered::iterator entry);
  bool InTurn(const PendingRequest& pending) const {
    return in_turn_ && pending.request.pairing.kind != Pairing::kGroup;
  }
  bool IsNext(const PendingRequest& pending) const;
  void MarkEntered(const PendingRequest& pending);
  void CountBytes(const PendingRequest& pending) {
    bytes_.fetch_add(pending.bytes, std::memory_order_relaxed);
  }
  void DiscountBytes(const PendingRequest& pending) {
    bytes_.fetch_sub(pending.bytes, std::memory_order_relaxed);
  }
  void CountDeferred() { num_deferred_.store(deferred_.size(), std::memory_order_seq_cst); }

  const bool in_turn_;
  std::mutex mu_;
  std::condition_variable emptied_;
  std::unordered_map<std::uint32_t, std::uint64_t> next_;  // by slot; the ticket; guarded by mu_
  Entered entered_;                                        // by Place::index(); guarded by mu_
  std::deque<Shared> deferred_;                            // oldest first; guarded by mu_
  std::atomic<std::size_t> num_deferred_{0};
  std::atomic<std::uint64_t> bytes_{0};
  bool refusing_ = false;  // guarded by mu_
  Status refusal_;         // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_PENDING_H_
