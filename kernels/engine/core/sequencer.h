// Sequencer: gives each request of this rank its key, ticket and incarnation in its communicator.
//
// Place in the stack: local to a rank; of shared memory it only reads which incarnations have failed. It
// gives out tickets, sequence numbers and ordinals, which start from 0 in every incarnation on all ranks, and
// it refuses requests of a failed incarnation.
//
// Note [The step that failed]: when an incarnation fails, each rank's user must see one failed step, no more,
// no less, or the ranks' next steps would not pair up. A rank that had a request pending sees the error
// there. A rank that had none has not begun that step yet: it is *owed* the failure, and its next step gets
// it. (The other ranks may fail several steps before that: then it is owed all of them.) A rank whose own
// step failed, for a reason of its own, has its error already. A failed step may still run some of its ops:
// they are recognised by the step's number, or by a ticket of the old incarnation, and refused.
//
// Note [Turns]: a new request waits from the moment when this rank's user has seen a step fail, or the
// incarnation was found to have failed, until all requests of that incarnation have ended here: meanwhile
// nobody can tell whether it belongs to the failed step or to the next one. Only this rank's own threads end
// the incarnation here, so the wait is short. But if the step failed before its incarnation had begun
// (Postpone), the other ranks must let go of the incarnation before it, too.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_SEQUENCER_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_SEQUENCER_H_

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
#include "kernels/control/readiness_table.h"
#include "kernels/control/ticket.h"
#include "kernels/engine/core/failure_memory.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class Sequencer {
 public:
  // Both outlive it. The record is only read.
  Sequencer(FailureMemory* memory, const FailureRecord* record) : memory_(memory), record_(record) {}

  // How much of a request's group this rank has submitted. A group of no step is kOpen in vain when another
  // such group comes in between.
  enum class GroupState { kNoGroup, kOpen, kWhole };

  struct Position {
    std::uint64_t ticket = 0;  // within the key; its incarnation is in the upper bits
    std::uint64_t incarnation = 0;
    bool open = false;  // the incarnation has begun; else the request must wait for it
    GroupState group = GroupState::kNoGroup;
  };

  // Draws the next ticket, for a group of step `step`. May wait (Note [Turns]). Errors: Internal when the
  // step has failed or this rank is owed a failure. Any thread but the engine's own.
  Status DrawTicket(StepId step, std::uint64_t* ticket);

  // Gives `request` its position. May wait (Note [Turns]). On OK the caller is *inside* the incarnation until
  // it calls Exit, and must not wait for another rank there. Errors: Internal as above; InvalidArgument when
  // a request of the same name is under way. After an error, *tell says whether the step must fail on the
  // other ranks, which may wait for this request. Any thread but the engine's own.
  Status Enter(const Request& request, Position* position, bool* tell);
  void Exit(std::uint64_t incarnation) { inside_[incarnation % 2].fetch_sub(1, std::memory_order_seq_cst); }

  // Marks that a request of `incarnation` that paired by `name` has ended. Any thread.
  void NameEnded(const std::string& name, std::uint64_t incarnation);

  // Marks that the step that drew `ticket` has ended; `failed` says how. Returns true, and sets *step to that
  // step, if other ranks may wait for tensors of its group that were never submitted here. Any thread.
  bool EndGroup(std::uint64_t ticket, bool failed, StepId* step);

  // Marks that step `step` has failed for a reason of its own. Returns true, and sets *incarnation, if that
  // incarnation must fail for all ranks; false if it has failed already, or if this is the step that this
  // rank is owed a failure for. May wait (Note [Turns]). Any thread but the engine's own.
  bool StartFailing(StepId step, std::uint64_t* incarnation);

  // The same for a group that belongs to no step: its incarnation must fail if it has not failed already. May
  // wait (Note [Turns]). Any thread but the engine's own.
  bool StartFailingGroup(std::uint64_t ticket);

  // Marks that this rank's user has seen a step fail in `incarnation`, which has failed or is about to.
  // `origin` is this rank's origin for it; if another rank records its failure first, that origin replaces
  // it. Any thread.
  void Excuse(std::uint64_t incarnation, std::uint64_t origin);

  // If `incarnation` is the current one and has not begun, remembers that it must fail as soon as it does,
  // and returns true. Any thread.
  bool Postpone(std::uint64_t incarnation, std::uint64_t origin, const std::string& text);
  // Whether the current incarnation has not begun, and must fail as soon as it does. Any thread.
  bool has_postponed();

  // Blocks until every failure of which this rank's user knows has ended its incarnation here (Note [Turns]).
  // Any thread but the engine's own.
  void AwaitSettled();

  // The job was aborted: nothing waits any more. Any thread.
  void Close();

  // The ticket that DrawTicket would return, if no failure is owed. It waits as that does. Any thread.
  std::uint64_t NextTicket();

  // The incarnation of what is submitted now. Any thread.
  std::uint64_t incarnation();

  // Returns the key of requests with this pairing. `wired`: there are several hosts; a group's tickets then
  // use several keys in turn (Note [Places between hosts] in pending.h).
  static std::string KeyOf(const Pairing& pairing, bool wired);

  // Returns the name that `key` has between hosts: there a group's tensor has one key, since its ticket says
  // which of the several was meant.
  static std::string KeyBetweenHosts(const std::string& key);

  // Progress thread only: the end of an incarnation, in this order.

  // The incarnation failed. Later requests belong to the next one, which has not begun.
  void Advance(std::uint64_t origin, const std::string& text);
  // Whether no thread is inside `incarnation` any more.
  bool AllOut(std::uint64_t incarnation);
  // All pending requests have got the error; `delivered` says whether there was one.
  void Settle(bool delivered);
  // This rank has left: failures of which its user does not know are of no concern to it.
  void ForgetOwed();
  // The current incarnation has begun on all ranks. Returns true if it must fail at once, because of
  // Postpone.
  bool Open(std::uint64_t* origin, std::string* text);

 private:
  struct Failure {
    std::uint64_t incarnation = 0;
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

  std::uint64_t Number(std::uint64_t* counter) const { return TicketOf(incarnation_, (*counter)++); }
  // mu_ is held:
  static GroupState StateOf(const Pairing& pairing, std::uint32_t submitted);
  Status CheckOwed(StepId step);
  void TakeOwed();
  void ExcuseNow(std::uint64_t incarnation);
  void AwaitTurn(std::unique_lock<std::mutex>* lock);

  FailureMemory* const memory_;
  const FailureRecord* const record_;
  std::mutex mu_;  // guards everything below
  std::condition_variable turned_;
  bool closed_ = false;
  std::uint64_t incarnation_ = 0;
  bool open_ = true;
  std::atomic<int> inside_[2] = {0, 0};  // threads, by parity of the incarnation; raised with mu_ held
  std::uint64_t next_ticket_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_out_of_band_ = 0;
  std::unordered_map<std::string, Name> names_;
  std::unordered_map<std::uint64_t, Group> groups_;  // by ticket; of steps that are under way
  // The last group that belongs to no step: nobody says when such a group ends.
  std::uint64_t stepless_ticket_ = ~std::uint64_t{0};
  std::uint32_t stepless_submitted_ = 0;

  Failure last_;                      // why the incarnation before this one failed
  bool settled_ = true;               // Settle was called for it
  std::deque<Failure> owed_;          // failures that must still reach this rank's user; oldest first
  bool excused_[2] = {false, false};  // the user has seen a step fail in the incarnation of that parity
  std::vector<std::uint64_t> own_origins_[2];  // failures of this rank in the incarnation of that parity
  Failure postponed_;  // why this incarnation must fail once it is open; origin 0: it need not
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_SEQUENCER_H_
