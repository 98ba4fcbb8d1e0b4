#include "kernels/engine/comm_thread.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/common/thread.h"
#include "kernels/engine/spin_time.h"

namespace tf_smddp {
namespace {

// A lost wake-up would be a bug (Note [No lost wake-up]); this bounds what one could cost.
constexpr std::chrono::milliseconds kSafetyNet{1000};

// From the publishing of something to the ringing for it, on a rank that is not held up.
constexpr std::chrono::microseconds kRingFollows{1};

// How long a stand-in waits for news.
constexpr std::chrono::microseconds kSpin{100};

// Of a stand-in that is about to leave.
constexpr int kLastSteps = 3;

// What is worth a rank's while: below, more chunks cost more than they save (measured with 2 ranks).
constexpr std::uint64_t kLeastChunkBytes = 32 << 10;

// Who goes on does not begin with more of other threads' work.
constexpr std::uint64_t kMostInPassing = 8 << 20;

// Adds the time of its life to a total.
class Stopwatch {
 public:
  explicit Stopwatch(Clock::duration* total) : total_(total), begin_(Clock::now()) {}
  ~Stopwatch() { *total_ += Clock::now() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Clock::duration* const total_;
  const Clock::time_point begin_;
};

std::vector<std::byte*> Windows(Communicator* communicator) {
  std::vector<std::byte*> windows;
  for (int member = 0; member < communicator->size(); ++member) {
    windows.push_back(communicator->segment().windows(member));
  }
  return windows;
}

std::vector<StagedProgress> Progress(Communicator* communicator) {
  std::vector<StagedProgress> progress;
  for (int member = 0; member < communicator->size(); ++member) {
    MemberRecord& record = communicator->segment().member(member);
    progress.push_back({&record.staged, &record.combined, &record.copied_out});
  }
  return progress;
}

void StoreProgress(MemberRecord& record, std::uint64_t chunks) {
  record.staged.store(chunks, std::memory_order_seq_cst);
  record.combined.store(chunks, std::memory_order_seq_cst);
  record.copied_out.store(chunks, std::memory_order_seq_cst);
}

// For what another thread, of whatever process, is about to do in a few instructions; it may be descheduled.
void Pause(int tries) {
  if (tries < 16) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

CommThread::CommThread(Communicator* communicator, Dispatcher* dispatcher)
    : communicator_(communicator),
      dispatcher_(dispatcher),
      pipeline_(communicator->index(), Windows(communicator), Progress(communicator),
                static_cast<std::uint64_t>(communicator->config().chunk_bytes)),
      // Besides a core for each rank's computing.
      own_spin_(
          SpinTime(communicator->job(), 2 * communicator->job().size() + 1, std::chrono::microseconds(30))),
      waiting_(SpinTime(communicator->job(), communicator->job().size(), kSpin)),
      passing_(SpinTime(communicator->job(), communicator->job().size(), kSpin)),
      spin_(own_spin_),
      thread_(StartThread("smddp-comm", [this] { Run(); })) {}

CommThread::~CommThread() {
  stopping_.store(true, std::memory_order_seq_cst);
  communicator_->RingSelf();
  thread_.join();
  if (!open_) communicator_->job().arena().Release();  // since EndEpoch
}

bool CommThread::Leave() {
  std::promise<bool> left;
  {
    std::lock_guard<std::mutex> lock(mu_);
    leaving_.push_back(&left);
    asked_to_leave_.store(true, std::memory_order_seq_cst);
  }
  communicator_->RingSelf();
  return left.get_future().get();
}

void CommThread::AnswerLeavers() {
  std::lock_guard<std::mutex> lock(mu_);
  for (std::promise<bool>* leaving : leaving_) leaving->set_value(gone_);
  leaving_.clear();
  asked_to_leave_.store(false, std::memory_order_seq_cst);
}

void CommThread::Run() {
  std::unique_lock<std::mutex> following(following_);
  while (!stopping_.load(std::memory_order_seq_cst)) {
    const std::uint32_t heard = bell().Listen();
    if (Step() || SpinUntilRung(heard, own_spin_)) continue;
    if (stopping_.load(std::memory_order_seq_cst)) return;
    following.unlock();
    bell().Wait(heard, kSafetyNet);
    following.lock();
  }
}

bool CommThread::StandIn::Try() {
  if (lock_.owns_lock()) return true;
  lock_ = std::unique_lock<std::mutex>(comm_->following_, std::try_to_lock);
  if (!lock_.owns_lock()) return false;
  comm_->stood_in_ = true;
  comm_->spin_ = spin_;
  comm_->bell().Hush();
  heard_ = comm_->bell().Listen();
  return true;
}

bool CommThread::StandIn::Step() {
  heard_ = comm_->bell().Listen();
  moved_ = comm_->Step();
  return moved_;
}

// What a rank publishes, it rings for next. Were the bell left in between, it would wake the comm thread for
// nothing. A step that has moved something may have made more to do, of which nobody rings: that is for the
// next step, or the comm thread.
CommThread::StandIn::~StandIn() {
  if (!lock_.owns_lock()) return;
  for (int steps = 0; steps < kLastSteps; ++steps) {
    const bool rung = comm_->SpinUntilRung(heard_, kRingFollows);
    if (!(rung || moved_) || !Step()) break;
  }
  comm_->stood_in_ = false;
  comm_->spin_ = comm_->own_spin_;
  *completed_ = std::move(comm_->held_);
  comm_->held_.clear();
  comm_->bell().Unhush(heard_);
  if (moved_) comm_->bell().Ring();
}

// `submit` may have to wait for the comm thread, so the place is taken after it.
void CommThread::Assist(Caller caller, const std::function<void()>& submit, const std::atomic<bool>& ended) {
  submit();
  const bool waits = caller == Caller::kWaits;
  SpinBudget& budget = waits ? waiting_ : passing_;
  if (!ended.load(std::memory_order_acquire) && (waits || MayStandInPassing())) {
    const Clock::duration spin = budget.Next(Clock::now());
    const Clock::duration most = waits ? Clock::duration::max() / 2 : 4 * spin;
    if (spin > Clock::duration::zero()) {
      StandInUntil(ended, spin, most) ? budget.Paid() : budget.InVain();
    }
  }
  if (dispatcher_->TakeOwedRing()) communicator_->RingSelf();
}

bool CommThread::MayStandInPassing() {
  return dispatcher_->pending().bytes() <= kMostInPassing &&
         communicator_->config().test_transfer_delay_ms == 0;  // which would be the caller's
}

// True when it has ended. Gives up when nothing has moved for `spin`, and in any case after `most`.
bool CommThread::StandInUntil(const std::atomic<bool>& ended, Clock::duration spin, Clock::duration most) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point until = begin + spin;
  for (bool more = true; more;) {
    Completions completed;
    {
      StandIn stand_in(this, spin, &completed);
      while (more && !stand_in.has_completed()) {
        const bool moved = stand_in.Try() && stand_in.Step();
        if (ended.load(std::memory_order_acquire)) break;
        const Clock::time_point now = Clock::now();
        if (moved) until = std::min(now + spin, begin + most);
        more = now < until;
      }
    }
    for (const auto& [done, status] : completed) OwnCallbacks::Call(done, status);
    if (ended.load(std::memory_order_acquire)) return true;
  }
  return false;
}

// Does what can be done now. False when there was nothing.
bool CommThread::Step() {
  dispatcher_->TakeOwedRing();  // before looking at the logs
  if (communicator_->job().aborted()) {
    const bool now = !ended_;
    if (now) EndJob();
    AnswerLeavers();
    return now;
  }
  if (gone_) {
    AnswerLeavers();
    return false;
  }
  if (!open_) {
    if (communicator_->segment().failure().Begun(epoch_)) {
      BeginEpoch();
      return true;
    }
    dispatcher_->CheckLeft(
        /*awaits_epoch=*/asked_to_leave_.load(
            std::memory_order_seq_cst));  // one that has shut down will not let it begin
    return false;
  }
  if (communicator_->segment().failure().Failed(epoch_)) {
    EndEpoch();
    return true;
  }
  bool moved = FollowSmallLog();
  moved |= FollowLaunchLog();
  moved |= dispatcher_->RetryDeferred();
  dispatcher_->CheckLeft(/*awaits_epoch=*/false);
  if (moved) return true;
  if (asked_to_leave_.load(std::memory_order_seq_cst)) {
    LeaveNow();
    return true;
  }
  // Out of sealed work: what is open goes now.
  if (!dispatcher_->fusion().SealOpen()) return false;
  communicator_->RingOthers();
  return true;
}

// In the middle of a batch.
void CommThread::Sleep(std::uint32_t heard) {
  if (SpinUntilRung(heard, spin_)) return;
  if (stood_in_) bell().Unhush(heard);
  bell().Wait(heard, kSafetyNet);
  if (stood_in_) bell().Hush();
}

bool CommThread::SpinUntilRung(std::uint32_t heard, Clock::duration time) {
  if (time.count() == 0) return false;
  const Clock::time_point until = Clock::now() + time;
  do {
    if (bell().RangSince(heard)) return true;
  } while (Clock::now() < until);
  return false;
}

bool CommThread::FollowSmallLog() {
  LaunchLog& log = communicator_->segment().small_log();
  std::vector<PendingTable::Shared> done;
  bool moved = false;
  for (;; ++small_position_) {
    const LaunchLog::View view = log.Read(small_position_);
    if (view.state != LaunchLog::View::kItem) break;
    TakeSmall(view.item, &done);
    moved = true;
  }
  if (!done.empty()) dispatcher_->Complete(done, /*small=*/true, holding());
  return moved;
}

// At small_position_. The last rank to arrive has made the results; they are there if the request is ready.
void CommThread::TakeSmall(std::uint64_t item, std::vector<PendingTable::Shared>* done) {
  bool ahead = false;
  const auto ready = [this](const PendingRequest& pending) { return dispatcher_->IsReady(pending); };
  PendingTable::Shared pending =
      dispatcher_->pending().TakeInTurn(Place::FromIndex(item), small_position_, ready, &ahead);
  if (pending != nullptr) return done->push_back(std::move(pending));
  if (ahead) return;
  communicator_->job().Abort("the small log is damaged: it names a request that rank " +
                             std::to_string(communicator_->job().rank()) +
                             " has not submitted, or that is not ready");
}

bool CommThread::FollowLaunchLog() {
  LaunchLog& log = communicator_->segment().launch_log();
  bool moved = false;
  while (!Broken()) {
    const LaunchLog::View view = log.Read(launch_position_);
    if (view.state != LaunchLog::View::kItem && view.state != LaunchLog::View::kMarker) break;
    if (view.state == LaunchLog::View::kItem) batch_.push_back(Place::FromIndex(view.item));
    const std::uint64_t position = launch_position_++;
    moved = true;
    if (!view.seals) continue;
    RunBatch(&log.EntryAt(position));
    if (stood_in_) break;  // it may have to go
  }
  return moved;
}

void CommThread::RunBatch(LogEntry* last) {
  const std::vector<Place> places = std::move(batch_);
  batch_.clear();
  in_batch_ = true;
  if (!held_.empty()) dispatcher_->PassOn(std::move(held_));
  held_.clear();
  const Clock::time_point begin = Clock::now();
  const Clock::duration moving_before = moving_;
  std::vector<Item> shared, own, staged;
  if (!Prepare(places, &shared, &own, &staged)) {
    last->End(BatchEnd::kAborted);
    in_batch_ = false;
    return;
  }
  if (const std::int64_t delay = communicator_->config().test_transfer_delay_ms; delay > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay) * places.size());
  }
  // The same on all ranks, since it follows from the cells alone: each chunk that anybody can do, and the
  // part of each rank that has one of its own.
  ChunkPlan plan;
  const std::uint64_t chunk_bytes = ChunkBytes(shared);
  for (const Item& item : shared) {
    const Call& call = item.work.call;
    plan.Add(call.count(), chunk_bytes / DTypeBytes(call.dtype));
  }
  std::uint64_t parts = 0;
  for (const Item& item : own) parts |= item.work.participants;
  for (const Item& item : staged) parts |= item.work.participants;
  const std::uint64_t total_units = plan.total() + static_cast<std::uint64_t>(__builtin_popcountll(parts));
  if (total_units == 0) last->End(BatchEnd::kComplete);  // nothing but barriers and empty tensors
  if (plan.total() > 0) RunShared(shared, plan, last, total_units);
  if (!own.empty() || !staged.empty()) {
    if (RunOwn(own) && RunStaged(staged)) AddDone(last, total_units);
  }

  while (last->ended() == BatchEnd::kRunning) {
    const std::uint32_t heard = bell().Listen();
    if (Broken()) {
      last->End(BatchEnd::kAborted);
      break;
    }
    if (last->ended() == BatchEnd::kRunning && !FollowSmallLog()) Sleep(heard);
  }
  in_batch_ = false;
  if (last->ended() == BatchEnd::kComplete) {
    const Clock::duration moving = moving_ - moving_before;
    const BatchCost cost = {begin, Clock::now() - begin - moving, moving,
                            Weight(shared) + Weight(own) + Weight(staged)};
    Charge(shared, /*staged=*/false, cost);
    Charge(own, /*staged=*/false, cost);
    Charge(staged, /*staged=*/true, cost);
    const std::uint64_t bytes = cost.weight - places.size();
    dispatcher_->counters().RanBatch(bytes);
    if (communicator_->job().logger().Writes(LogLevel::kDebug)) {
      LogDebug("batch of " + std::to_string(places.size()) + " with " + std::to_string(bytes) + " bytes, " +
               std::to_string(staged.size()) + " staged");
    }
    Complete(places);
  }
  // Aborted: EndEpoch or EndJob delivers the error with everything else.
}

// Of a batch: such that all ranks find something to do in a small one, too.
std::uint64_t CommThread::ChunkBytes(const std::vector<Item>& shared) const {
  std::uint64_t bytes = 0;
  for (const Item& item : shared) bytes += item.work.call.count() * DTypeBytes(item.work.call.dtype);
  const std::uint64_t each = bytes / static_cast<std::uint64_t>(communicator_->size());
  const std::uint64_t rounded = (each + kLeastChunkBytes - 1) / kLeastChunkBytes * kLeastChunkBytes;
  return std::min(std::max(rounded, kLeastChunkBytes),
                  static_cast<std::uint64_t>(communicator_->config().chunk_bytes));
}

void CommThread::Complete(const std::vector<Place>& places) {
  std::vector<PendingTable::Shared> done;
  for (const Place place : places) {
    PendingTable::Shared pending = dispatcher_->pending().Take(place);
    if (pending != nullptr) done.push_back(std::move(pending));  // else a damaged log named it twice
  }
  dispatcher_->Complete(done, /*small=*/false, holding());
}

void CommThread::LogDebug(const std::string& text) const {
  communicator_->job().logger().Log(LogLevel::kDebug,
                                    "process set " + std::to_string(communicator_->id()) + ": " + text);
}

// A share of a batch's cost goes by bytes; what has none still counts.
std::uint64_t CommThread::Weight(const std::vector<Item>& items) {
  std::uint64_t weight = 0;
  for (const Item& item : items) weight += item.pending->bytes + 1;
  return weight;
}

// Gives each request its share of what its batch has cost.
void CommThread::Charge(const std::vector<Item>& items, bool staged, const BatchCost& cost) {
  for (const Item& item : items) {
    const double share = static_cast<double>(item.pending->bytes + 1) / static_cast<double>(cost.weight);
    const auto part = [share](Clock::duration time) {
      return Clock::duration(static_cast<Clock::rep>(share * static_cast<double>(time.count())));
    };
    Cost& own = item.pending->cost;
    own.waiting = cost.begin - item.pending->submitted + part(cost.waiting);
    own.moving = part(cost.moving);
    own.staged = staged;
    own.begun = cost.begin;
  }
}

// Sorts a batch's requests by how they are done. False when one of them cannot be.
bool CommThread::Prepare(const std::vector<Place>& places, std::vector<Item>* shared, std::vector<Item>* own,
                         std::vector<Item>* staged) {
  for (const Place place : places) {
    Item item;
    item.pending = dispatcher_->pending().Find(place);
    if (item.pending == nullptr) {
      communicator_->job().Abort("the launch log is damaged: it names a request that rank " +
                                 std::to_string(communicator_->job().rank()) + " has not submitted");
      return false;
    }
    const Request& request = item.pending->request;
    Work& work = item.work;
    Status status = PrepareWork(communicator_, *item.pending, &work);
    const bool all_outputs = status.ok() && work.collective->reach() == Collective::Reach::kAllOutputs;
    void* output = request.output;
    if (status.ok() && !all_outputs) {
      status = request.allocate(work.collective->OutputRows(work.call, work.rank), &output);
      // Not damage: this rank has no room.
      if (!status.ok()) status = FailedPrecondition(status.message());
    }
    if (!status.ok()) {
      dispatcher_->FailWork(*item.pending, status);
      return false;
    }
    if (work.reachable) {
      if (!all_outputs) work.outputs[static_cast<std::size_t>(work.rank)] = output;
      (all_outputs ? shared : own)->push_back(std::move(item));
      continue;
    }
    // Where this rank's own tensor is. A small request that another rank could not put into its arena is in
    // the span; Complete copies it out of there.
    const bool in_span = item.pending->span != nullptr;
    const auto rank = static_cast<std::size_t>(work.rank);
    work.inputs[rank] = in_span ? item.pending->span : request.input;
    work.outputs[rank] = in_span && all_outputs ? item.pending->span : output;
    staged->push_back(std::move(item));
  }
  return true;
}

void CommThread::RunShared(const std::vector<Item>& items, const ChunkPlan& plan, LogEntry* last,
                           std::uint64_t total_units) {
  for (;;) {
    std::uint64_t chunk;
    if (!last->Claim(plan.total(), communicator_->index() % 2 == 1, &chunk) || Broken()) return;
    const ChunkPlan::Chunk part = plan.At(chunk);
    const Work& work = items[part.item].work;
    {
      const Stopwatch moving(&moving_);
      work.collective->Direct(work.call, work.rank, work.inputs.data(), work.outputs.data(), part.begin,
                              part.count);
    }
    AddDone(last, total_units);
    FollowSmallLog();
  }
}

// False when it was cut short by a failure.
bool CommThread::RunOwn(const std::vector<Item>& items) {
  for (const Item& item : items) {
    const Work& work = item.work;
    const std::uint64_t chunk_count =
        static_cast<std::uint64_t>(communicator_->config().chunk_bytes) / DTypeBytes(work.call.dtype);
    const std::uint64_t count = work.collective->OutputCount(work.call, work.rank);
    for (std::uint64_t begin = 0; begin < count; begin += chunk_count) {
      if (Broken()) return false;
      {
        const Stopwatch moving(&moving_);
        work.collective->Direct(work.call, work.rank, work.inputs.data(), work.outputs.data(), begin,
                                std::min(chunk_count, count - begin));
      }
      FollowSmallLog();
    }
  }
  return true;
}

bool CommThread::StepPipeline() {
  const Stopwatch moving(&moving_);
  return pipeline_.Step();
}

// False when it was cut short by a failure.
bool CommThread::RunStaged(const std::vector<Item>& items) {
  if (items.empty()) return true;
  std::vector<StagedTransfer> transfers;
  for (const Item& item : items) {
    const Work& work = item.work;
    const auto rank = static_cast<std::size_t>(work.rank);
    transfers.push_back({work.call, work.rank, work.members, work.inputs[rank], work.outputs[rank]});
  }
  pipeline_.Start(std::move(transfers));
  while (!pipeline_.done()) {
    const std::uint32_t heard = bell().Listen();
    if (Broken()) return false;
    if (StepPipeline()) {
      communicator_->RingOthers();
      FollowSmallLog();
    } else if (!FollowSmallLog()) {
      Sleep(heard);
    }
  }
  return true;
}

void CommThread::AddDone(LogEntry* last, std::uint64_t total_units) {
  if (last->done_units.fetch_add(1, std::memory_order_acq_rel) + 1 != total_units) return;
  last->End(BatchEnd::kComplete);
  communicator_->RingOthers();
}

// The epoch has failed: lets go of everything that is of it. What had completed on all ranks is delivered as
// such, everything else gets the error.
void CommThread::EndEpoch() {
  FailureRecord& failure = communicator_->segment().failure();
  for (int tries = 0; failure.StateOf(epoch_) != FailureRecord::State::kFailed; ++tries) {
    if (failure.StateOf(epoch_) == FailureRecord::State::kDamaged) {
      communicator_->job().Abort("the failure record of a process set is damaged");
    }
    if (communicator_->job().aborted()) return;  // its writer may be dead
    Pause(tries);
  }
  const std::string text = failure.Text();
  const std::uint64_t origin = failure.Origin();
  dispatcher_->sequencer().Advance(origin, text);
  for (int tries = 0; !dispatcher_->sequencer().AllOut(epoch_); ++tries) {
    if (communicator_->job().aborted()) return;
    Pause(tries);
  }
  communicator_->job().arena().Quarantine();
  SettleLogs();
  dispatcher_->FailEpoch(epoch_, origin, text);
  const std::uint64_t failed = epoch_++;
  LogDebug("epoch " + std::to_string(failed) + " has ended here: " + text);
  open_ = false;
  failure.Drained(communicator_->index());
  Restart(failed);
}

// After this rank has drained or left: starts the next epoch if it was the last one to.
void CommThread::Restart(std::uint64_t epoch) {
  CommunicatorSegment& segment = communicator_->segment();
  if (!segment.failure().TryRestart(epoch, segment.draining())) return;
  segment.table().Clear();
  segment.groups().Clear();
  for (int member = 0; member < communicator_->size(); ++member) {
    if ((segment.active().load(std::memory_order_seq_cst) >> member & 1) != 0) {
      StoreProgress(segment.member(member), 0);
    }
  }
  segment.small_log().Reopen();
  segment.launch_log().Reopen();
  segment.failure().Restart(epoch);
  communicator_->RingAll();
}

void CommThread::BeginEpoch() {
  pipeline_.Reset();
  communicator_->job().arena().Release();
  open_ = true;
  LogDebug("epoch " + std::to_string(epoch_) + " begins");
  dispatcher_->OpenEpoch();
}

// The logs are closed first, so that every rank draws the same line (Note [One end]).
void CommThread::SettleLogs() {
  LaunchLog& small_log = communicator_->segment().small_log();
  LaunchLog& launch_log = communicator_->segment().launch_log();
  small_log.Close();
  launch_log.Close();
  std::vector<PendingTable::Shared> small;
  std::vector<Place> done;
  for (const std::uint64_t end = small_log.TailFrom(small_position_); small_position_ < end;
       ++small_position_) {
    const LaunchLog::View view = small_log.Resolve(small_position_);
    if (view.state == LaunchLog::View::kItem) TakeSmall(view.item, &small);
  }
  for (const std::uint64_t end = launch_log.TailFrom(launch_position_); launch_position_ < end;
       ++launch_position_) {
    const LaunchLog::View view = launch_log.Resolve(launch_position_);
    if (view.state == LaunchLog::View::kItem) batch_.push_back(Place::FromIndex(view.item));
    if (!view.seals) continue;
    if (launch_log.EntryAt(launch_position_).End(BatchEnd::kAborted) == BatchEnd::kComplete) {
      done.insert(done.end(), batch_.begin(), batch_.end());
    }
    batch_.clear();
  }
  batch_.clear();
  dispatcher_->Complete(small, /*small=*/true, holding());
  Complete(done);
}

// Note [Leaving a communicator] in readiness_table.h.
void CommThread::LeaveNow() {
  CommunicatorSegment& segment = communicator_->segment();
  const std::uint64_t bit = std::uint64_t{1} << communicator_->index();
  // A thread of this rank that has launched a request may still be at it.
  for (int tries = 0; !dispatcher_->sequencer().AllOut(epoch_); ++tries) {
    if (communicator_->job().aborted()) return;
    Pause(tries);
  }
  // Nobody waits for this rank's chunks any more; before it is inactive, since whatever becomes ready then is
  // without it.
  StoreProgress(communicator_->self(), ~std::uint64_t{0});
  segment.active().fetch_and(~bit, std::memory_order_seq_cst);
  dispatcher_->LaunchForOthers(segment.table().MakeReadyAfterLeaving());
  // Nothing here touches the table any more: an epoch may end without this rank (Note [Restart]).
  segment.draining().fetch_and(~bit, std::memory_order_seq_cst);
  Restart(epoch_);
  gone_ = true;
  dispatcher_->sequencer().Close();
  AnswerLeavers();
}

// After an abort.
void CommThread::EndJob() {
  communicator_->job().arena().Quarantine();
  if (open_ && !gone_) SettleLogs();
  dispatcher_->FailAll(communicator_->job().AbortText());
  ended_ = true;
}

}  // namespace tf_smddp
