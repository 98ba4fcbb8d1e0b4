// Sequencer: which request of this rank is which, in its communicator: its key, ticket and epoch.
//
// Place in the stack: local to a rank; of shared memory it only reads which epochs have failed. It gives
// out tickets, sequence numbers and ordinals, which start from 0 in every epoch on all ranks, and it refuses
// what belongs to a failed epoch.
//
// Note [The step that failed]: when an epoch fails, each rank's user must see one failed step, no more, no
// less, or the ranks' next steps would not pair up. A rank that had something pending sees the error there.
// One that had nothing pending has not begun that step yet: it is *owed* the failure, and its next step gets
// it. (The others may fail several steps before it begins its next: it is owed them all.) A rank whose own
// step failed, for a reason of its own, has its error. A step may still run some of its ops after it has
// failed: they are known by the step's number, or by a ticket of the old epoch, and refused.
//
// Note [Turns]: between the moment when this rank's user has seen a step fail, or an epoch has been found to
// have failed, and the moment when all of that epoch has ended here, nobody can tell whether a new request
// belongs to the failed step or to the one after it. So new ones wait. It is for this rank's own threads
// alone to end the epoch; but when the step failed before its epoch had begun (Postpone), for the other ranks
// to drain the one before, too.
#ifndef TF_SMDDP_KERNELS_ENGINE_SEQUENCER_H_
#define TF_SMDDP_KERNELS_ENGINE_SEQUENCER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/control/failure_record.h"
#include "kernels/engine/failure_memory.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class Sequencer {
 public:
  // Both outlive it. The record is only looked at.
  Sequencer(FailureMemory* memory, const FailureRecord* record) : memory_(memory), record_(record) {}

  struct Position {
    std::uint64_t ticket = 0;  // within the key; its epoch is in the upper bits
    std::uint64_t epoch = 0;
    bool open = false;  // the epoch has begun; else the request must wait for it
  };

  // The next ticket, for a group of step `step`. May wait (Note [Turns]). Errors: Internal when the step has
  // failed or this rank is owed a failure. Any thread but the engine's own.
  Status DrawTicket(StepId step, std::uint64_t* ticket);

  // Takes a request. May wait (Note [Turns]). On OK the caller is *inside* the epoch until it calls Exit; it
  // must not wait for another rank in there, but in the express lane: who has met others there waits for what
  // they do before they wait for anything. Errors: Internal as above, InvalidArgument when a request of the
  // same name is under way; then *tell says whether the other ranks, which may wait for this request, must be
  // told. Any thread but the engine's own.
  Status Enter(const Request& request, Position* position, bool* tell);
  void Exit(std::uint64_t epoch) { inside_[epoch % 2].fetch_sub(1, std::memory_order_seq_cst); }

  // A request of `epoch` that paired by `name` has ended. Any thread.
  void NameEnded(const std::string& name, std::uint64_t epoch);

  // The step that drew `ticket` has ended; `failed` says how. True when its group is not whole here, in the
  // epoch of the ticket, though other ranks may wait for it; then *step is that step. Any thread.
  bool EndGroup(std::uint64_t ticket, bool failed, StepId* step);

  // Step `step` has failed by itself. False when the other ranks need not be told: they have been, or it is
  // the one that this rank is owed a failure for. Else *epoch is the one to fail. May wait (Note [Turns]).
  // Any thread but the engine's own.
  bool StartFailing(StepId step, std::uint64_t* epoch);

  // This rank's user has seen a step fail in `epoch`, which has failed, or is about to. `origin` is the
  // failure that this rank has made of it; when another rank's comes first, it is known by that one's. Any
  // thread.
  void Excuse(std::uint64_t epoch, std::uint64_t origin);

  // If `epoch` is the current one and has not begun, remembers that it must fail as soon as it does, and
  // returns true. Any thread.
  bool Postpone(std::uint64_t epoch, std::uint64_t origin, const std::string& text);
  // Whether the current epoch has not begun, and must fail as soon as it does. Any thread.
  bool has_postponed();

  // The job was aborted: nothing waits any more. Any thread.
  void Close();

  // The epoch of what is submitted now. Any thread.
  std::uint64_t epoch();

  // The key that requests of this pairing have.
  static std::string KeyOf(const Pairing& pairing);

  static std::uint64_t EpochOf(std::uint64_t ticket) { return ticket >> kNumberBits; }

  // Comm thread only: the end of an epoch, in this order.

  // The epoch failed. What comes from now on belongs to the next one, which is not open yet.
  void Advance(std::uint64_t origin, const std::string& text);
  // Whether no thread is inside `epoch` any more.
  bool AllOut(std::uint64_t epoch);
  // All that was pending has been given the error; `delivered` if there was anything.
  void Settle(bool delivered);
  // The current epoch has begun on all ranks. True when it must fail at once, for what Postpone was told.
  bool Open(std::uint64_t* origin, std::string* text);

 private:
  // Tickets are | epoch: 23 bits | number: 40 bits |, and fit the int64 of TensorFlow's tensors.
  static constexpr int kNumberBits = 40;

  struct Failure {
    std::uint64_t epoch = 0;
    std::uint64_t origin = 0;
    std::string text;
  };
  struct Group {
    std::uint32_t num_params = 0;  // 0 until its first tensor has come
    std::uint32_t submitted = 0;
    std::vector<bool> indices;  // of those submitted
    StepId step = kNoStep;
  };
  struct Name {
    std::uint64_t ordinal = 0;
    bool under_way = false;
  };

  std::uint64_t Number(std::uint64_t* counter) const { return epoch_ << kNumberBits | (*counter)++; }
  // mu_ is held:
  Status CheckOwed(StepId step);
  void TakeOwed();
  void ExcuseNow(std::uint64_t epoch);
  void AwaitTurn(std::unique_lock<std::mutex>* lock);

  FailureMemory* const memory_;
  const FailureRecord* const record_;
  std::mutex mu_;  // guards everything below
  std::condition_variable turned_;
  bool closed_ = false;
  std::uint64_t epoch_ = 0;
  bool open_ = true;
  std::atomic<int> inside_[2] = {0, 0};  // threads, by parity of the epoch; raised with mu_ held
  std::uint64_t next_ticket_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_out_of_band_ = 0;
  std::unordered_map<std::string, Name> names_;
  std::unordered_map<std::uint64_t, Group> groups_;  // by ticket; of steps that are under way

  Failure last_;                      // why the epoch before this one failed
  bool settled_ = true;               // Settle was called for it
  std::deque<Failure> owed_;          // what has not reached this rank's user, and must; oldest first
  bool excused_[2] = {false, false};  // the user has seen a step fail in the epoch of that parity
  std::vector<std::uint64_t> own_origins_[2];  // failures of this rank in the epoch of that parity
  Failure postponed_;  // why this epoch must fail once it is open; origin 0: it need not
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_SEQUENCER_H_
