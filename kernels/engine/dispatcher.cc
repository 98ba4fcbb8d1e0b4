// Note [Leaving]. A rank that shuts down sets its `left` flag and then rings every other rank, whose comm
// thread looks at all that is pending. A rank that arrives at a request and is not the last looks at the
// flags after it has set its arrival bit. Both use sequentially consistent order. So a request that waits for
// a rank that has left is found, whichever came first.
#include "kernels/engine/dispatcher.h"

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/common/config.h"

namespace tf_smddp {
namespace {

std::string RankList(std::uint64_t mask) {
  std::string text = (mask & (mask - 1)) == 0 ? "rank " : "ranks ";
  bool first = true;
  for (int rank = 0; rank < kMaxLocalRanks; ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    if (!first) text += ", ";
    text += std::to_string(rank);
    first = false;
  }
  return text;
}

}  // namespace

Call MakeCall(const Manifest& manifest, int num_ranks) {
  return {manifest.kind, manifest.dtype, manifest.op, manifest.root, num_ranks, manifest.count};
}

Dispatcher::Dispatcher(Job* job, CompletionThread* completions)
    : job_(job),
      completions_(completions),
      fusion_(&job->control().launch_log(), &job->control().groups(),
              static_cast<std::uint64_t>(job->config().bucket_cap_bytes)) {}

std::uint64_t Dispatcher::Submit(Request request) {
  const auto pending = std::make_shared<PendingRequest>();
  const Pairing& pairing = request.pairing;
  pending->id = next_id_.fetch_add(1);
  pending->manifest = MakeManifest(request.kind, request.dtype, request.op, request.root, pairing.param_index,
                                   pairing.num_params, request.shape, request.label);
  pending->bytes = pending->manifest.count * DTypeBytes(request.dtype);
  pending->request = std::move(request);
  const std::uint64_t id = pending->id;

  Status status = ResolvePairing(pending.get());
  if (!status.ok()) {
    pending->request.done(status);
    return id;
  }
  PlaceData(pending.get());
  switch (pending_.Add(pending)) {
    case PendingTable::Added::kEntered:
      if (Enter(*pending)) return id;
      [[fallthrough]];
    case PendingTable::Added::kDeferred:
      job_->RingSelf();  // the comm thread tries again, and sees to it that it is rung
      return id;
    case PendingTable::Added::kTwin:
      status = InvalidArgument(DescribeManifest(pending->manifest) +
                               " was submitted twice in one execution of its group; give each tensor its own "
                               "param_index below num_params");
      // The other ranks may have taken theirs, and would wait for a second one from here.
      job_->Abort("on rank " + std::to_string(job_->rank()) + ", " + status.message());
      break;
    case PendingTable::Added::kClosed:
      status = pending_.refusal();
      break;
  }
  if (pending->span != nullptr) job_->arena().Free(pending->span, pending->bytes);
  pending->request.done(status);
  return id;
}

Status Dispatcher::ResolvePairing(PendingRequest* pending) {
  const Pairing& pairing = pending->request.pairing;
  std::string key;
  switch (pairing.kind) {
    case Pairing::kGroup:
      key = "group/" + std::to_string(pairing.param_index);
      pending->ticket = pairing.ticket;
      break;
    case Pairing::kSequence: {
      key = "sequence";
      std::lock_guard<std::mutex> lock(ordinals_mu_);
      pending->ticket = next_sequence_++;
      break;
    }
    case Pairing::kName: {
      key = "name/" + pairing.name;
      std::lock_guard<std::mutex> lock(ordinals_mu_);
      pending->ticket = ordinals_[pairing.name]++;
      break;
    }
  }
  return job_->control().table().FindSlot(key, &pending->slot);
}

// Says where the tensor lies in shared memory. A small one in private memory moves into a span, so that the
// last rank to arrive can reach it; when the arena is full it goes the staged way like a large one.
void Dispatcher::PlaceData(PendingRequest* pending) {
  if (pending->bytes == 0) {
    pending->cell = {0, 0};
    return;
  }
  const Request& request = pending->request;
  Arena& arena = job_->arena();
  pending->cell = {arena.OffsetOf(request.input, pending->bytes),
                   arena.OffsetOf(request.output, pending->bytes)};
  const bool in_arena =
      pending->cell.input_offset != kNotInArena && pending->cell.output_offset != kNotInArena;
  if (in_arena || pending->bytes > static_cast<std::uint64_t>(job_->config().small_bytes)) return;
  void* span = arena.Allocate(pending->bytes);
  if (span == nullptr) return;
  std::memcpy(span, request.input, pending->bytes);
  const std::uint64_t offset = arena.OffsetOf(span, pending->bytes);
  pending->span = span;
  pending->cell = {offset, offset};
}

// `pending` is in pending_. From Arrive on, another thread may complete it: only what Submit wrote is read of
// it. False when its place serves another ticket: then it is among the deferred ones.
bool Dispatcher::Enter(const PendingRequest& pending) {
  const Place place = pending.place();
  Manifest others;
  int other_rank = -1;
  switch (job_->control().table().Arrive(pending.slot, pending.ticket, job_->rank(), job_->everyone(),
                                         pending.manifest, pending.cell, &others, &other_rank)) {
    case Arrival::kWaiting:
      if (job_->LeftMask() != 0) job_->RingSelf();  // the comm thread looks closer
      return true;
    case Arrival::kLast:
      Launch(pending);
      return true;
    case Arrival::kBusy:
      pending_.Defer(place);
      return false;
    case Arrival::kMismatch:
      AbortOnMismatch(pending, others, other_rank);
      return true;
    case Arrival::kTwice:
      job_->Abort(
          "rank " + std::to_string(job_->rank()) + " ran " + DescribeManifest(pending.manifest) +
          " a second time while other ranks had not run it once; all ranks must run the same collectives");
      return true;
    case Arrival::kAborted:
      return true;  // the comm thread delivers the error
  }
  __builtin_unreachable();
}

bool Dispatcher::ResolveAll(const PendingRequest& pending, const void** inputs, void** outputs) {
  for (int rank = 0; rank < job_->size(); ++rank) {
    const Cell cell = job_->control().table().CellOf(pending.place(), rank);
    if (cell.input_offset == kNotInArena || cell.output_offset == kNotInArena) return false;
    inputs[rank] = job_->view(rank).Resolve(cell.input_offset, pending.bytes);
    outputs[rank] = job_->view(rank).Resolve(cell.output_offset, pending.bytes);
    if (inputs[rank] == nullptr || outputs[rank] == nullptr) {
      job_->Abort("the shared table is damaged: rank " + std::to_string(rank) + "'s " +
                  DescribeManifest(pending.manifest) + " lies outside its arena");
      return false;
    }
  }
  return true;
}

void Dispatcher::Launch(const PendingRequest& pending) {
  const GroupPart group = pending.group();
  const Place place = pending.place();
  const void* inputs[kMaxLocalRanks];
  void* outputs[kMaxLocalRanks];
  // When an append is refused, the job was aborted, and the comm thread delivers the error.
  if (pending.bytes <= static_cast<std::uint64_t>(job_->config().small_bytes) &&
      ResolveAll(pending, inputs, outputs)) {
    FindCollective(pending.manifest.kind)
        .Direct(MakeCall(pending.manifest, job_->size()), inputs, outputs, 0, pending.manifest.count);
    job_->control().small_log().Append(place.index(), [](std::uint64_t) { return std::uint64_t{0}; });
    fusion_.AddElsewhere(group);
  } else {
    fusion_.Add(place, pending.bytes, group);
  }
  job_->RingAll();
}

void Dispatcher::AbortOnMismatch(const PendingRequest& pending, const Manifest& others, int other_rank) {
  const Pairing& pairing = pending.request.pairing;
  std::string where;
  if (pairing.kind == Pairing::kGroup) where = "in group execution " + std::to_string(pending.ticket);
  if (pairing.kind == Pairing::kSequence) where = "at collective " + std::to_string(pending.ticket);
  if (pairing.kind == Pairing::kName)
    where = "at use " + std::to_string(pending.ticket) + " of '" + pairing.name + "'";
  job_->Abort(
      "the ranks run different collectives " + where + " (counted from 0): rank " +
      std::to_string(job_->rank()) + " has " + DescribeManifest(pending.manifest) + "; rank " +
      std::to_string(other_rank) + " has " + DescribeManifest(others) +
      ". All ranks must run the same collectives in the same order, with the same shapes, types and ops. "
      "Likely causes: one rank ran a collective more (a step more, a metric on one rank only), or the model "
      "or "
      "the batch differs between ranks");
}

bool Dispatcher::RetryDeferred() {
  if (!pending_.has_deferred()) {
    job_->self().deferring.store(0, std::memory_order_seq_cst);
    return false;
  }
  // Set before the tries below look at the claims; whoever retires a generation frees its claim before it
  // looks here.
  job_->self().deferring.store(1, std::memory_order_seq_cst);
  bool entered = false;
  std::size_t cursor = 0;
  // Only what is deferred now: one that is busy still goes to the back again.
  std::size_t left = 0;
  pending_.ForEach([&left](const PendingRequest&, bool is_entered) { left += is_entered ? 0 : 1; });
  for (; left > 0; --left) {
    const PendingTable::Shared pending = pending_.EnterDeferred(&cursor);
    if (pending == nullptr) break;
    if (Enter(*pending)) entered = true;  // else it was busy still
  }
  return entered;
}

void Dispatcher::CheckLeft() {
  const std::uint64_t left = job_->LeftMask();
  if (left == 0) return;
  std::string text;
  pending_.ForEach([&](const PendingRequest& pending, bool entered) {
    const std::uint64_t arrived =
        entered ? job_->control().table().ArrivedMask(pending.slot, pending.ticket) : 0;
    const std::uint64_t missing = job_->everyone() & ~arrived & left;
    if (missing == 0 || !text.empty()) return;
    if (entered && (arrived >> job_->rank() & 1) == 0) return;  // about to arrive, and to look itself
    text = RankList(missing) + " called shutdown(), but " + DescribeManifest(pending.manifest) + " on rank " +
           std::to_string(job_->rank()) +
           " still waits for it. Likely cause: not all ranks ran the same number of steps";
  });
  if (!text.empty()) job_->Abort(text);
}

void Dispatcher::Complete(const std::vector<Place>& places) {
  std::vector<CompletionThread::Completion> completions;
  bool retired = false;
  for (const Place place : places) {
    PendingTable::Shared pending = pending_.Take(place);
    if (pending == nullptr) continue;  // a damaged log named a request that is not ours
    if (pending->span != nullptr) {
      std::memcpy(pending->request.output, pending->span, pending->bytes);
      job_->arena().Free(pending->span, pending->bytes);
    }
    retired |= job_->control().table().Acknowledge(place, job_->rank(), job_->everyone());
    completions.emplace_back(std::move(pending->request.done), Status());
  }
  completions_->Push(std::move(completions));
  if (!retired) return;
  for (int rank = 0; rank < job_->size(); ++rank) {
    RankRecord& record = job_->control().rank(rank);
    if (record.deferring.load(std::memory_order_seq_cst) != 0) record.bell.Ring();
  }
}

void Dispatcher::FailAll(const std::string& text) {
  std::vector<CompletionThread::Completion> completions;
  for (PendingTable::Shared& pending : pending_.Close(Internal(text))) {
    completions.emplace_back(std::move(pending->request.done),
                             Internal(DescribeManifest(pending->manifest) + " failed: " + text));
  }
  completions_->Push(std::move(completions));
}

void Dispatcher::Cancel(std::uint64_t id, const std::string& reason) {
  std::string text;
  pending_.ForEach([&](const PendingRequest& pending, bool entered) {
    if (pending.id != id) return;
    if (entered && job_->control().table().ArrivedMask(pending.slot, pending.ticket) == job_->everyone())
      return;
    text = "rank " + std::to_string(job_->rank()) + " withdrew " + DescribeManifest(pending.manifest) + ": " +
           reason;
  });
  if (!text.empty()) job_->Abort(text);
}

}  // namespace tf_smddp
