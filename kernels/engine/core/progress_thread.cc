#include "kernels/engine/core/progress_thread.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "kernels/common/thread.h"

namespace tf_smddp {
namespace {

// A lost wake-up would be a bug (Note [No lost wake-up]); this bounds what one could cost.
constexpr std::chrono::milliseconds kSafetyNet{1000};

// How long the thread sleeps when nobody rings for what comes: short naps, and longer ones when nothing has
// moved for kSoon, since each nap ends with some microseconds of asking.
constexpr std::chrono::microseconds kShortNap{10}, kLongNap{100};
constexpr std::chrono::milliseconds kSoon{2};

// How long it sleeps while the rank computes the rest of a group, such as gradients, and nobody waits for
// what comes. A nap of any length takes 24 to 34 microseconds of a core on a virtual machine, for setting its
// timer and the switch of threads: a thread that computes beside naps of 100 microseconds gets 83 % of its
// core.
constexpr std::chrono::microseconds kNapBesideComputing{500};

// The time from the publishing of something to the ringing for it, on a rank that is not held up.
constexpr std::chrono::microseconds kRingFollows{1};

// How long a caller waits for news, and how long if other hosts must answer. A caller in passing is one that
// would have other work: TensorFlow's thread, in a graph. It computes nothing while it waits. The time over
// the wire is more than most small allreduces take there (docs/performance.md has the measurements). When no
// rank waits any more, an answer takes longer than that, so a trial lasts longer.
constexpr std::chrono::microseconds kSpin{100}, kPassingOverWire{500}, kTrialOverWire{1000};
constexpr std::chrono::milliseconds kWaitingOverWire{5};

// How long a caller in passing waits for news over the wire when it has submitted the last tensor of a group:
// the step has little to do then but wait for the group.
constexpr std::chrono::milliseconds kEndingOverWire{2};

// Steps of a caller that is about to leave.
constexpr int kLastSteps = 3;

// A caller that has other work does not begin to drive while more bytes than this are pending.
constexpr std::uint64_t kMostInPassing = 8 << 20;

// How many callbacks this thread is in. A callback may submit the next request and drive the progress, and so
// call the next callback: a user's loop would become a recursion. So beyond a depth of kDeepest the
// completion thread calls them.
thread_local int depth = 0;
constexpr int kDeepest = 8;

// Returns `time`, or 0 if the ranks of this host together have fewer than `cores_needed` cores. Spinning
// saves the few microseconds of a wake-up, but only where no other thread needs the core.
Clock::duration SpinTime(const Job& job, int cores_needed, Clock::duration time) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return Clock::duration::zero();
  int usable = CPU_COUNT(&cores);
  // Launchers other than smddprun bind each rank to cores of its own.
  const std::string& launcher = job.config().launcher;
  if (!launcher.empty() && launcher != kSmddprun && usable < ::sysconf(_SC_NPROCESSORS_ONLN)) {
    usable *= job.local_size();
  }
  return usable >= cores_needed ? time : Clock::duration::zero();
}

}  // namespace

// The right to drive the progress in the place of the sleeping thread, for as long as this lives.
class ProgressThread::Guard {
 public:
  // Callbacks of what the steps complete are appended to *held, to be called when this no longer lives,
  // since they may do anything.
  Guard(ProgressThread* thread, Progress::Completions* held) : thread_(thread), held_(held) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // A rank rings right after it has published something. If a caller left the bell in between, the ring would
  // wake the thread for nothing. A step that has moved something may have made more to do, for which nobody
  // rings: that is for the next step, or the thread.
  ~Guard() {
    if (!lock_.owns_lock()) return;
    for (int steps = 0; steps < kLastSteps; ++steps) {
      const bool rung = thread_->SpinUntilRung(heard_, kRingFollows);
      if (!(rung || moved_) || !Step()) break;
    }
    thread_->bell().Unhush(heard_);
    if (moved_ || thread_->progress_.polls()) thread_->bell().Ring();
  }

  // False while the thread itself, or another caller, drives.
  bool Try() {
    if (lock_.owns_lock()) return true;
    lock_ = std::unique_lock<std::mutex>(thread_->driving_, std::try_to_lock);
    if (!lock_.owns_lock()) return false;
    thread_->bell().Hush();
    heard_ = thread_->bell().Listen();
    return true;
  }

  bool Step() {
    heard_ = thread_->bell().Listen();
    moved_ = thread_->progress_.Step(depth < kDeepest ? held_ : nullptr);
    return moved_;
  }

 private:
  ProgressThread* const thread_;
  Progress::Completions* const held_;
  std::unique_lock<std::mutex> lock_;
  std::uint32_t heard_ = 0;  // before the last step
  bool moved_ = false;       // in the last step
};

ProgressThread::ProgressThread(MemberState* state, Submission* submission, Failures* failures,
                               Delivery* delivery)
    : state_(state),
      communicator_(state->communicator),
      group_(state->group),
      submission_(submission),
      progress_(state, submission, failures, delivery),
      // It spins only where there are cores besides one for each rank's computing.
      spin_(SpinTime(communicator_->job(), 2 * communicator_->job().local_size() + 1,
                     std::chrono::microseconds(30))),
      waiting_(SpinTime(communicator_->job(), communicator_->job().local_size(),
                        communicator_->wired() ? kWaitingOverWire : kSpin)),
      passing_(SpinTime(communicator_->job(), communicator_->job().local_size(),
                        communicator_->wired() ? kPassingOverWire : kSpin),
               communicator_->wired() ? kTrialOverWire : kSpin),
      ending_(SpinTime(communicator_->job(), communicator_->job().local_size(), kEndingOverWire)),
      thread_(StartThread("smddp-progress", [this] { Run(); })) {}

ProgressThread::~ProgressThread() {
  stopping_.store(true, std::memory_order_seq_cst);
  group_->RingSelf();
  thread_.join();
}

void ProgressThread::Run() {
  SleepExactly();
  std::unique_lock<std::mutex> driving(driving_);
  Clock::time_point last_move;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    const std::uint32_t heard = bell().Listen();
    const bool moved = progress_.Step(nullptr);
    progress_.EndDevices();
    const bool polls = progress_.polls();
    if (moved && polls) last_move = Clock::now();
    if (moved || (!polls && SpinUntilRung(heard, spin_))) continue;
    if (stopping_.load(std::memory_order_seq_cst)) return;
    driving.unlock();
    const Clock::time_point asleep = Clock::now();
    if (polls) {
      bell().Wait(heard, Nap(asleep - last_move));
    } else {
      bell().Wait(heard, kSafetyNet);
    }
    driving.lock();
    // A signal may have ended the sleep before.
    if (!polls && Clock::now() - asleep >= kSafetyNet && !bell().RangSince(heard))
      CheckWakeUp(heard, &driving);
  }
}

// `idle`: since something has moved.
std::chrono::microseconds ProgressThread::Nap(Clock::duration idle) {
  if (submission_->last_group() == Sequencer::GroupState::kOpen) return kNapBesideComputing;
  return idle < kSoon ? kShortNap : kLongNap;
}

// Nothing has rung since `heard`, for as long as the safety net lasts, so there must be nothing to do. If
// there is, whoever made it so may be just about to ring, or to owe this thread a ring, which a step takes.
void ProgressThread::CheckWakeUp(std::uint32_t heard, std::unique_lock<std::mutex>* driving) {
  const std::uint64_t taken = submission_->owed_rings_taken();
  if (!progress_.Step(nullptr)) return;
  const std::string work = progress_.last_work();
  while (progress_.Step(nullptr)) {
  }
  driving->unlock();
  bell().Wait(heard, kSafetyNet);
  driving->lock();
  if (bell().RangSince(heard) || submission_->owed_rings_taken() != taken) return;
  const std::string text =
      "rank " + std::to_string(communicator_->job().rank()) + " had work in process set " +
      std::to_string(communicator_->id()) + " (" + work +
      "), but nothing woke its progress thread. This is a bug in tf_smddp, please report it";
  if (communicator_->config().test_strict) return communicator_->job().Abort(text);
  communicator_->job().logger().Log(LogLevel::kWarning, text);
}

bool ProgressThread::SpinUntilRung(std::uint32_t heard, Clock::duration time) {
  if (time.count() == 0) return false;
  const Clock::time_point until = Clock::now() + time;
  do {
    if (bell().RangSince(heard)) return true;
  } while (Clock::now() < until);
  return false;
}

// `submit` may have to wait for the thread, so this caller begins to drive after it.
void ProgressThread::SubmitAndProgress(Caller caller, const std::function<void()>& submit,
                                       const std::atomic<bool>& ended) {
  submit();
  const bool waits = caller == Caller::kBlocking;
  const Sequencer::GroupState group = submission_->last_group();
  const bool ends = group == Sequencer::GroupState::kWhole;
  SpinBudget& budget = waits ? waiting_ : ends ? ending_ : passing_;
  if (!ended.load(std::memory_order_acquire) && (waits || MayDriveInPassing(group))) {
    const Clock::duration spin = budget.Next(Clock::now());
    const Clock::duration most = waits ? Clock::duration::max() / 2 : 4 * spin;
    if (spin > Clock::duration::zero()) {
      DriveUntil(ended, spin, most) ? budget.Paid() : budget.InVain();
    }
  }
  if (submission_->TakeOwedRing()) group_->RingSelf();
}

// Nobody waits for the first tensors of a group, and over a network they take longer than a caller waits.
bool ProgressThread::MayDriveInPassing(Sequencer::GroupState group) {
  if (group == Sequencer::GroupState::kOpen) return false;
  return state_->pending.bytes() <= kMostInPassing &&
         communicator_->config().test_transfer_delay_ms == 0;  // which the caller would wait for
}

// True when it has ended. Gives up when nothing has moved for `spin`, and in any case after `most`.
bool ProgressThread::DriveUntil(const std::atomic<bool>& ended, Clock::duration spin, Clock::duration most) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point until = begin + spin;
  for (bool more = true; more;) {
    Progress::Completions held;
    {
      Guard guard(this, &held);
      while (more && held.empty()) {
        const bool moved = guard.Try() && guard.Step();
        if (ended.load(std::memory_order_acquire)) break;
        const Clock::time_point now = Clock::now();
        if (moved) until = std::min(now + spin, begin + most);
        more = now < until;
      }
    }
    ++depth;
    for (const auto& [done, status] : held) done(status);
    --depth;
    if (ended.load(std::memory_order_acquire)) return true;
  }
  return false;
}

}  // namespace tf_smddp
