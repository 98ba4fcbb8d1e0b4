#include "kernels/engine/comm_thread.h"

#include <sched.h>

#include <utility>

#include "kernels/common/thread.h"

namespace tf_smddp {
namespace {

// A lost wake-up would be a bug (Note [No lost wake-up]); this bounds what one could cost.
constexpr std::chrono::milliseconds kSafetyNet{1000};

std::vector<std::byte*> Reserves(const Job& job) {
  const std::uint64_t bytes =
      StagedPipeline::ReserveBytes(static_cast<std::uint64_t>(job.config().chunk_bytes));
  std::vector<std::byte*> reserves;
  for (int rank = 0; rank < job.size(); ++rank) reserves.push_back(job.view(rank).Resolve(0, bytes));
  return reserves;
}

std::vector<StagedProgress> Progress(Job* job) {
  std::vector<StagedProgress> progress;
  for (int rank = 0; rank < job->size(); ++rank) {
    RankRecord& record = job->control().rank(rank);
    progress.push_back({&record.staged, &record.combined, &record.copied_out});
  }
  return progress;
}

// Spinning saves a wake-up's few microseconds, where no other rank wants the core.
std::chrono::microseconds SpinTime(int local_size) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool spare = ::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 2 * local_size;
  return std::chrono::microseconds(spare ? 30 : 0);
}

}  // namespace

CommThread::CommThread(Job* job, Dispatcher* dispatcher)
    : job_(job),
      dispatcher_(dispatcher),
      pipeline_(job->rank(), Reserves(*job), Progress(job),
                static_cast<std::uint64_t>(job->config().chunk_bytes)),
      spin_(SpinTime(job->size())),
      thread_(StartThread("smddp-comm", [this] { Run(); })) {}

CommThread::~CommThread() {
  stopping_.store(true, std::memory_order_seq_cst);
  job_->RingSelf();
  thread_.join();
}

void CommThread::Run() {
  bool drained = false;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    const std::uint32_t heard = job_->self().bell.Listen();
    if (job_->aborted()) {
      if (!drained) Drain();
      drained = true;
      if (!stopping_.load(std::memory_order_seq_cst)) job_->self().bell.Wait(heard, kSafetyNet);
      continue;
    }
    bool moved = FollowSmallLog();
    moved |= FollowLaunchLog();
    moved |= dispatcher_->RetryDeferred();
    dispatcher_->CheckLeft();
    if (moved) continue;
    // Out of sealed work: what is open goes now.
    if (dispatcher_->fusion().SealOpen()) {
      job_->RingOthers();
      continue;
    }
    if (!stopping_.load(std::memory_order_seq_cst)) Sleep(heard);
  }
}

void CommThread::Sleep(std::uint32_t heard) {
  Doorbell& bell = job_->self().bell;
  if (spin_.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin_;
    do {
      if (bell.RangSince(heard)) return;
    } while (std::chrono::steady_clock::now() < until);
  }
  bell.Wait(heard, kSafetyNet);
}

bool CommThread::FollowSmallLog() {
  LaunchLog& log = job_->control().small_log();
  std::vector<Place> done;
  for (;; ++small_position_) {
    const LaunchLog::View view = log.Read(small_position_);
    if (view.state != LaunchLog::View::kItem) break;
    done.push_back(Place::FromIndex(view.item));
  }
  if (done.empty()) return false;
  dispatcher_->Complete(done);
  return true;
}

bool CommThread::FollowLaunchLog() {
  LaunchLog& log = job_->control().launch_log();
  bool moved = false;
  while (!job_->aborted()) {
    const LaunchLog::View view = log.Read(launch_position_);
    if (view.state != LaunchLog::View::kItem && view.state != LaunchLog::View::kMarker) break;
    if (view.state == LaunchLog::View::kItem) batch_.push_back(Place::FromIndex(view.item));
    const std::uint64_t position = launch_position_++;
    moved = true;
    if (view.seals) RunBatch(&log.EntryAt(position));
  }
  return moved;
}

void CommThread::RunBatch(LogEntry* last) {
  const std::vector<Place> places = std::move(batch_);
  batch_.clear();
  std::vector<Place> direct;
  ChunkPlan plan;
  std::vector<StagedTransfer> staged;
  const void* inputs[kMaxLocalRanks];
  void* outputs[kMaxLocalRanks];
  for (const Place place : places) {
    const PendingTable::Shared pending = dispatcher_->pending().Find(place);
    if (pending == nullptr) {
      job_->Abort("the launch log is damaged: it names a request that rank " + std::to_string(job_->rank()) +
                  " has not submitted");
      last->End(BatchEnd::kAborted);
      return;
    }
    const Call call = MakeCall(pending->manifest, job_->size());
    if (dispatcher_->ResolveAll(*pending, inputs, outputs)) {
      direct.push_back(place);
      plan.Add(call.count, static_cast<std::uint64_t>(job_->config().chunk_bytes) / DTypeBytes(call.dtype));
    } else if (pending->span != nullptr) {
      // A small request that another rank could not put into its arena: Complete copies the span out.
      staged.push_back({call, pending->span, pending->span});
    } else {
      staged.push_back({call, pending->request.input, pending->request.output});
    }
  }
  // The same on all ranks, since it follows from the cells alone: each chunk, and each rank's staged part.
  const std::uint64_t total_units =
      plan.total() + (staged.empty() ? 0 : static_cast<std::uint64_t>(job_->size()));
  if (total_units == 0) last->End(BatchEnd::kComplete);  // nothing but empty tensors
  if (plan.total() > 0) RunDirect(direct, plan, last, total_units);
  if (!staged.empty()) RunStaged(std::move(staged), last, total_units);

  while (last->ended() == BatchEnd::kRunning) {
    const std::uint32_t heard = job_->self().bell.Listen();
    if (job_->aborted()) {
      last->End(BatchEnd::kAborted);
      break;
    }
    if (last->ended() == BatchEnd::kRunning && !FollowSmallLog()) Sleep(heard);
  }
  if (last->ended() == BatchEnd::kComplete) dispatcher_->Complete(places);
  // Aborted: Drain delivers the error with everything else.
}

void CommThread::RunDirect(const std::vector<Place>& places, const ChunkPlan& plan, LogEntry* last,
                           std::uint64_t total_units) {
  const void* inputs[kMaxLocalRanks];
  void* outputs[kMaxLocalRanks];
  std::size_t resolved = places.size();  // which item `inputs` and `outputs` are of
  PendingTable::Shared pending;
  for (;;) {
    const std::uint64_t chunk = last->next_chunk.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= plan.total() || job_->aborted()) return;
    const ChunkPlan::Chunk part = plan.At(chunk);
    if (part.item != resolved) {
      pending = dispatcher_->pending().Find(places[part.item]);
      if (!dispatcher_->ResolveAll(*pending, inputs, outputs)) return;  // damaged since: aborted
      resolved = part.item;
    }
    FindCollective(pending->manifest.kind)
        .Direct(MakeCall(pending->manifest, job_->size()), inputs, outputs, part.begin, part.count);
    AddDone(last, total_units);
    FollowSmallLog();
  }
}

void CommThread::RunStaged(std::vector<StagedTransfer> transfers, LogEntry* last, std::uint64_t total_units) {
  pipeline_.Start(std::move(transfers));
  while (!pipeline_.done()) {
    const std::uint32_t heard = job_->self().bell.Listen();
    if (job_->aborted()) return;
    if (pipeline_.Step()) {
      job_->RingOthers();
      FollowSmallLog();
    } else if (!FollowSmallLog()) {
      Sleep(heard);
    }
  }
  AddDone(last, total_units);
}

void CommThread::AddDone(LogEntry* last, std::uint64_t total_units) {
  if (last->done_units.fetch_add(1, std::memory_order_acq_rel) + 1 != total_units) return;
  last->End(BatchEnd::kComplete);
  job_->RingOthers();
}

// After an abort. What had completed on all ranks is delivered as such, everything else gets the error; the
// logs are closed first, so that every rank draws the same line (Note [One end]).
void CommThread::Drain() {
  job_->arena().Quarantine();
  LaunchLog& small_log = job_->control().small_log();
  LaunchLog& launch_log = job_->control().launch_log();
  small_log.Close();
  launch_log.Close();
  std::vector<Place> done;
  for (; small_position_ < small_log.Tail(); ++small_position_) {
    const LaunchLog::View view = small_log.Resolve(small_position_);
    if (view.state == LaunchLog::View::kItem) done.push_back(Place::FromIndex(view.item));
  }
  for (; launch_position_ < launch_log.Tail(); ++launch_position_) {
    const LaunchLog::View view = launch_log.Resolve(launch_position_);
    if (view.state == LaunchLog::View::kItem) batch_.push_back(Place::FromIndex(view.item));
    if (!view.seals) continue;
    if (launch_log.EntryAt(launch_position_).End(BatchEnd::kAborted) == BatchEnd::kComplete) {
      done.insert(done.end(), batch_.begin(), batch_.end());
    }
    batch_.clear();
  }
  dispatcher_->Complete(done);
  dispatcher_->FailAll(job_->AbortText());
}

}  // namespace tf_smddp
