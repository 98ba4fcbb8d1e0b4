#include "kernels/engine/core/batch_runner.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "kernels/engine/core/resolve.h"

namespace tf_smddp {

BatchRunner::BatchRunner(MemberState* state, Failures* failures)
    : state_(state),
      failures_(failures),
      communicator_(state->communicator),
      group_(state->group),
      wired_(communicator_->wired()),
      transfers_(communicator_->transfers()) {}

void BatchRunner::Start(LogReader::Batch batch) {
  begin_ = Clock::now();
  moving_ = {};
  total_units_ = 0;
  planned_ = false;
  no_memory_until_ = {};
  batch_state_ = &group_->table().BatchAt(batch.front());
  batch_ = std::move(batch);
  if (!ResolveAll(batch_)) {
    batch_state_->End(BatchEnd::kAborted);
    return Drop();  // what its items are is not known
  }
  if (const std::int64_t delay = communicator_->config().test_transfer_delay_ms; delay > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay) * batch_.size());
  }
  Plan();  // also if other ranks have ended the batch by now: ranks of other hosts may wait for this one's
           // part
}

// Begins to move the batch, when all that is bounced late is there, and all outputs are. False before that.
bool BatchRunner::Plan() {
  if (Clock::now() < no_memory_until_) return false;
  bool settled = true;
  for (Item& item : items_) {
    const std::shared_ptr<BounceBuffer>& bounce = item.pending->input_bounce;
    if (bounce != nullptr && !bounce->filled()) return false;
    if (bounce != nullptr && !bounce->fill_status().ok()) {
      FailBatch(item, FillError(*item.pending));
      return true;
    }
    if (!Settle(&item)) return true;
    settled = settled && item.settled && (bounce == nullptr || bounce->filled());
  }
  if (!settled) return false;
  for (Item& item : items_) {
    if (!ChooseTransfer(&item)) return true;
  }
  for (const auto& transfer : transfers_) {
    std::vector<const ResolvedRequest*> requests;
    for (const Item& item : items_) {
      if (item.transfer == transfer.get()) requests.push_back(&item.resolved);
    }
    total_units_ += transfer->Plan(std::move(requests), batch_state_);
  }
  if (total_units_ == 0) batch_state_->End(BatchEnd::kComplete);  // nothing but barriers and empty tensors
  planned_ = true;
  return true;
}

Transfer::Readiness BatchRunner::Prepare(const ResolvedRequest& resolved) {
  for (const auto& transfer : transfers_) {
    if (transfer->Takes(resolved)) return transfer->Prepare(resolved);
  }
  return Transfer::Readiness::kReady;
}

// All ranks choose alike, and all fail if there is none.
bool BatchRunner::ChooseTransfer(Item* item) {
  const auto takes = [item](const auto& transfer) { return transfer->Takes(item->resolved); };
  const auto found = std::find_if(transfers_.begin(), transfers_.end(), takes);
  if (found == transfers_.end()) {
    FailBatch(*item, Internal("no backend moves " + DescribeManifest(item->pending->manifest)));
    return false;
  }
  item->transfer = found->get();
  return true;
}

// False when a request cannot be run: the job or the incarnation has failed.
bool BatchRunner::ResolveAll(const LogReader::Batch& batch) {
  items_.clear();
  items_.reserve(batch.size());
  for (const Place place : batch) {
    Item& item = items_.emplace_back();
    item.pending = state_->pending.FindForBatch(place);
    if (item.pending == nullptr) {
      communicator_->job().Abort("shared memory is corrupt: the launch log names a request that rank " +
                                 std::to_string(communicator_->job().rank()) + " has not submitted");
      return false;
    }
    if (!ResolveOne(&item)) return false;
  }
  return true;
}

// Where a tensor of this host was on its GPU still when the request was resolved: puts this rank's into the
// arena, and resolves the request again. False when it cannot be run.
bool BatchRunner::Settle(Item* item) {
  if (item->settled) return true;
  PendingRequest* const pending = item->pending.get();
  if (wired_ && pending->input_bounce != nullptr && pending->cell.input_offset == kOnDevice) {
    Cell* const cell = &pending->cell;
    cell->input_offset = communicator_->job().arena().OffsetOf(pending->span, pending->bytes);
    cell->output_offset = item->resolved.all_outputs() ? cell->input_offset : 0;
    group_->table().MoveToArena(pending->place(), group_->index(), cell->input_offset, cell->output_offset);
    group_->RingOthers();
  }
  return ResolveOne(item);
}

void BatchRunner::FailBatch(const Item& item, const Status& status) {
  if (wired_) {
    // The other hosts have launched it, too, and would wait for this rank's part.
    communicator_->job().Abort(state_->RankName() + ": " + status.message());
  } else {
    failures_->FailRequest(*item.pending, status);
  }
  batch_state_->End(BatchEnd::kAborted);
}

bool BatchRunner::ResolveOne(Item* item) {
  const Request& request = item->pending->request;
  ResolvedRequest& resolved = item->resolved;
  resolved = ResolvedRequest();
  Status status = Resolve(communicator_, *item->pending, &resolved);
  void* output = request.output.data;
  if (status.ok() && resolved.on_devices) {
    const Transfer::Readiness readiness = Prepare(resolved);
    if (readiness == Transfer::Readiness::kNotYet) return true;
    if (readiness == Transfer::Readiness::kRefused) {
      resolved = ResolvedRequest();
      status = Resolve(communicator_, *item->pending, &resolved);
    }
  }
  if (status.ok() && !resolved.on_devices) status = BounceLate(item);
  item->settled = !wired_ || resolved.all_bounced;
  if (status.ok() && !item->settled) return true;
  if (status.ok() && !resolved.all_outputs()) {
    status = request.allocate(resolved.collective->OutputRows(resolved.call, resolved.self), &output);
    if (status.code() == StatusCode::kNoMemoryNow && Clock::now() < begin_ + kMemoryPatience) {
      no_memory_until_ = Clock::now() + kMemoryPause;
      item->settled = false;
      return true;
    }
    if (status.ok() && !request.output.on_host() && !resolved.on_devices)
      status = BounceOutput(resolved, item->pending.get(), &output);
    // It is no damage when this rank has no room.
    if (!status.ok()) status = ErrorOfStep(status, status.message());
    if (!status.ok() && status.code() != StatusCode::kDeviceLost && wired_) {
      item->failed = std::exchange(status, Status());
      status = ThrowAway(item, &output);
    }
  }
  if (!status.ok()) {
    FailBatch(*item, status);
    return false;
  }
  const std::size_t self = resolved.self.index();
  if (resolved.reachable) {
    if (!resolved.all_outputs()) resolved.outputs[self] = output;
    return true;
  }
  // A small request that another rank could not put into its arena is staged from and to this rank's span;
  // Complete copies the result out of there.
  const bool in_span = item->pending->span != nullptr;
  resolved.inputs[self] = in_span ? item->pending->span : request.input.data;
  resolved.outputs[self] = in_span && resolved.all_outputs() ? item->pending->span : output;
  return true;
}

// Sets *output to memory whose content nobody reads. NCCL writes to pinned memory of the host, too.
Status BatchRunner::ThrowAway(Item* item, void** output) {
  ResolvedRequest& resolved = item->resolved;
  const std::uint64_t bytes = resolved.collective->OutputCount(resolved.call, resolved.self) *
                              DTypeBytes(resolved.call.operation.dtype);
  if (!resolved.on_devices) {
    item->thrown_away.resize(bytes);
    *output = item->thrown_away.data();
    return {};
  }
  *output = nullptr;
  if (bytes == 0) return {};
  std::shared_ptr<BounceBuffer> pinned;
  Status status =
      BounceBuffer::Allocate(communicator_->job().bounce_pool(), item->pending->request.output.kind, bytes,
                             item->pending->manifest, &pinned);
  if (!status.ok()) return status;
  *output = pinned->span();
  resolved.output_owner = std::move(pinned);
  return {};
}

// This rank's tensors are on a device still, and another rank's are on the host: begins to copy the input
// there.
Status BatchRunner::BounceLate(Item* item) {
  PendingRequest* const pending = item->pending.get();
  if (pending->cell.input_offset != kOnDevice || pending->bytes == 0) return {};
  if (pending->input_bounce != nullptr) return {};  // it has begun
  const Request& request = pending->request;
  Status status = BounceBuffer::Allocate(communicator_->job().bounce_pool(), request.input.kind,
                                         pending->bytes, pending->manifest, &pending->input_bounce);
  if (!status.ok()) return ErrorOfStep(status, status.message());
  pending->span = pending->input_bounce->span();
  if (item->resolved.all_outputs()) pending->output_bounce = pending->input_bounce;
  pending->input_bounce->Fill(request.input, [handle = communicator_->handle()] {
    handle->Call([](Communicator* communicator) { communicator->group().RingSelf(); });
  });
  return {};
}

// The output lies where the CPU may not touch it: it is made in the arena, and copied when it is complete.
Status BatchRunner::BounceOutput(const ResolvedRequest& resolved, PendingRequest* pending, void** output) {
  const std::uint64_t bytes = resolved.collective->OutputCount(resolved.call, resolved.self) *
                              DTypeBytes(resolved.call.operation.dtype);
  if (bytes == 0) return {};
  Status status = BounceBuffer::Allocate(communicator_->job().bounce_pool(), pending->request.output.kind,
                                         bytes, pending->manifest, &pending->output_bounce);
  if (!status.ok()) return status;
  pending->request.output.data = *output;
  *output = pending->output_bounce->span();
  return {};
}

bool BatchRunner::Step(Requests* done) {
  bool moved = false;
  // Another rank may have ended it, or this rank in Start.
  if (batch_state_->ended() == BatchEnd::kRunning && !planned_) moved = Plan();
  if (batch_state_->ended() == BatchEnd::kRunning && planned_) moved |= StepTransfers();
  const BatchEnd end = batch_state_->ended();
  if (end == BatchEnd::kRunning) return moved;
  // Between hosts, others may complete a batch while this rank still copies its tensors to the host. When it
  // is aborted, the end of the incarnation, or of the job, delivers the error with everything else.
  if (end == BatchEnd::kComplete) Complete(done);
  Drop();
  return true;
}

bool BatchRunner::StepTransfers() {
  for (const auto& transfer : transfers_) {
    if (transfer->done()) continue;
    const Clock::time_point begin = Clock::now();
    const Transfer::Progress progress = transfer->Step();
    if (progress.moved) moving_ += Clock::now() - begin;
    bool ring = progress.peers_wait;
    if (progress.unit_done && batch_state_->AddDone(total_units_)) {
      batch_state_->End(BatchEnd::kComplete);
      ring = true;
    }
    if (ring) group_->RingOthers();
    if (progress.moved) return true;
    if (!transfer->done()) return false;
  }
  return false;
}

void BatchRunner::Complete(Requests* done) {
  for (const auto& transfer : transfers_) transfer->Complete();
  Charge();
  LogEnd();
  for (auto item = items_.begin(); item != items_.end();) {
    if (item->failed.ok()) {
      ++item;
      continue;
    }
    FailAlone(*item);
    batch_.erase(batch_.begin() + (item - items_.begin()));
    item = items_.erase(item);
  }
  TakeAll(batch_, done);
}

// A request that has failed here alone stays pending until the incarnation ends, which is about to fail.
void BatchRunner::FailAlone(const Item& item) {
  failures_->FailRequest(*item.pending, item.failed);
  if (group_->table().Acknowledge(item.pending->place(), group_->index())) group_->RingAll();
}

bool BatchRunner::polls() const {
  const auto polls = [](const auto& transfer) { return transfer->polls(); };
  if (running() && !planned_ && no_memory_until_ != Clock::time_point()) return true;
  return running() && std::any_of(transfers_.begin(), transfers_.end(), polls);
}

bool BatchRunner::busy() const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [](const auto& transfer) { return transfer->busy(); });
}

void BatchRunner::TakeAll(const LogReader::Batch& batch, Requests* done) {
  for (const Place place : batch) {
    PendingTable::Shared pending = state_->pending.Take(place);
    if (pending != nullptr) done->push_back(std::move(pending));  // else corrupt memory named it twice
  }
}

void BatchRunner::End(Requests* done) {
  if (batch_state_ == nullptr) return;
  if (batch_state_->End(BatchEnd::kAborted) == BatchEnd::kComplete) Complete(done);
  Drop();
}

void BatchRunner::Drop() {
  batch_state_ = nullptr;
  items_.clear();
}

void BatchRunner::EndUnstarted(const LogReader::Batch& batch, Requests* done) {
  BatchState& state = group_->table().BatchAt(batch.front());
  if (state.End(BatchEnd::kAborted) == BatchEnd::kComplete) TakeAll(batch, done);
}

// Between hosts nothing is staged, and others may complete a batch that this rank has not resolved.
bool BatchRunner::IsStaged(const Item& item) const {
  return !wired_ && !item.resolved.on_devices && !item.resolved.reachable;
}

// Gives each request its share of the time that the batch has taken, by bytes; a request without bytes counts
// as one of one byte.
void BatchRunner::Charge() {
  std::uint64_t weight = 0;
  for (const Item& item : items_) weight += item.pending->bytes + 1;
  const Clock::duration waiting = Clock::now() - begin_ - moving_;
  for (const Item& item : items_) {
    const double share = static_cast<double>(item.pending->bytes + 1) / static_cast<double>(weight);
    const auto part = [share](Clock::duration time) {
      return Clock::duration(static_cast<Clock::rep>(share * static_cast<double>(time.count())));
    };
    Cost& cost = item.pending->cost;
    cost.waiting = begin_ - item.pending->submitted + part(waiting);
    cost.moving = part(moving_);
    cost.staged = IsStaged(item);
    cost.on_devices = item.resolved.on_devices;
    cost.begun = begin_;
  }
  state_->counters->RanBatch(weight - items_.size());
}

void BatchRunner::LogEnd() const {
  if (!communicator_->job().logger().Writes(LogLevel::kDebug)) return;
  std::uint64_t bytes = 0, staged = 0;
  for (const Item& item : items_) {
    bytes += item.pending->bytes;
    staged += IsStaged(item) ? 1 : 0;
  }
  communicator_->LogDebug("batch of " + std::to_string(items_.size()) + " with " + std::to_string(bytes) +
                          " bytes, " + std::to_string(staged) + " staged");
}

}  // namespace tf_smddp
