#include "kernels/engine/watch/statistics.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/common/number_text.h"

namespace tf_smddp {
namespace {

constexpr double kNanosecond = 1e-9;

std::uint64_t Nanoseconds(Clock::duration time) {
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
}

double Seconds(const std::atomic<std::uint64_t>& nanoseconds) {
  return static_cast<double>(nanoseconds.load(std::memory_order_relaxed)) * kNanosecond;
}

template <typename Combine>
void CombineAll(CollectiveStats* to, const CollectiveStats& other, Combine combine) {
  to->calls = combine(to->calls, other.calls);
  to->errors = combine(to->errors, other.errors);
  to->bytes = combine(to->bytes, other.bytes);
  to->staged_bytes = combine(to->staged_bytes, other.staged_bytes);
  to->nccl_bytes = combine(to->nccl_bytes, other.nccl_bytes);
  to->in_place_bytes = combine(to->in_place_bytes, other.in_place_bytes);
  to->small_calls = combine(to->small_calls, other.small_calls);
  to->waiting_seconds = combine(to->waiting_seconds, other.waiting_seconds);
  to->moving_seconds = combine(to->moving_seconds, other.moving_seconds);
}

// `"name": 12`
std::string Field(const char* name, std::uint64_t value) {
  return std::string("\"") + name + "\": " + std::to_string(value);
}

std::string Field(const char* name, double seconds) {
  return std::string("\"") + name + "\": " + DecimalText(seconds, 9);
}

std::string KindsToJson(const StatsByKind& kinds) {
  std::string text = "{";
  for (int number = 0; number < kNumCollectiveKinds; ++number) {
    const auto kind = static_cast<CollectiveKind>(number);
    if (InfoOf(kind).Is(kIsInternal)) continue;
    const CollectiveStats& stats = kinds[static_cast<std::size_t>(number)];
    text += text.size() > 1 ? ", " : "";
    text += std::string("\"") + CollectiveKindName(kind) + "\": {" + Field("calls", stats.calls) + ", " +
            Field("errors", stats.errors) + ", " + Field("bytes", stats.bytes) + ", " +
            Field("staged_bytes", stats.staged_bytes) + ", " + Field("nccl_bytes", stats.nccl_bytes) + ", " +
            Field("in_place_bytes", stats.in_place_bytes) + ", " + Field("small_calls", stats.small_calls) +
            ", " + Field("waiting_seconds", stats.waiting_seconds) + ", " +
            Field("moving_seconds", stats.moving_seconds) + "}";
  }
  return text + "}";
}

}  // namespace

void CollectiveStats::Add(const CollectiveStats& other) { CombineAll(this, other, std::plus<>()); }

void CollectiveStats::Subtract(const CollectiveStats& other) { CombineAll(this, other, std::minus<>()); }

void AddByKind(const StatsByKind& from, StatsByKind* to) {
  for (std::size_t kind = 0; kind < from.size(); ++kind) (*to)[kind].Add(from[kind]);
}

void CommunicatorCounters::Completed(CollectiveKind kind, std::uint64_t bytes, const Cost& cost) {
  OfKind& of = Of(kind);
  Add(&of.calls, 1);
  Add(&of.bytes, bytes);
  if (cost.staged) Add(&of.staged_bytes, bytes);
  if (cost.on_devices) Add(&of.nccl_bytes, bytes);
  if (cost.in_place) Add(&of.in_place_bytes, bytes);
  if (cost.small) Add(&of.small_calls, 1);
  Add(&of.waiting_ns, Nanoseconds(cost.waiting));
  Add(&of.moving_ns, Nanoseconds(cost.moving));
}

void CommunicatorCounters::Failed(CollectiveKind kind) { Add(&Of(kind).errors, 1); }

void CommunicatorCounters::Moved(CollectiveKind kind, Clock::duration time) {
  Add(&Of(kind).moving_ns, Nanoseconds(time));
}

void CommunicatorCounters::RanBatch(std::uint64_t bytes) {
  Add(&batches_, 1);
  Add(&batch_bytes_, bytes);
}

void CommunicatorCounters::IncarnationFailed() {
  Add(&failures_, 1);
  std::lock_guard<std::mutex> lock(groups_mu_);
  groups_.clear();
}

std::uint64_t CommunicatorCounters::Blocked(const Pairing& pairing, Clock::time_point submitted,
                                            Clock::time_point now, bool arrived_last) {
  std::uint64_t step = 0;
  std::lock_guard<std::mutex> lock(groups_mu_);
  if (pairing.kind == Pairing::kGroup && pairing.num_params > 1) {
    Group& group = groups_[pairing.ticket];
    group.last_submitted = submitted = std::max(group.last_submitted, submitted);
    if (pairing.param_index == 0) group.arrived_last = arrived_last;
    if (++group.completed < pairing.num_params) return 0;
    if (group.arrived_last) Add(&last_steps_, 1);
    groups_.erase(pairing.ticket);
    step = steps_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (first_step_ == Clock::time_point()) first_step_ = now;
    last_step_ = now;
  }
  Add(&blocked_ns_, Nanoseconds(now - std::max(submitted, blocked_until_)));
  blocked_until_ = std::max(now, blocked_until_);
  return step;
}

CollectiveStats CommunicatorCounters::Read(const OfKind& of) {
  CollectiveStats stats;
  stats.calls = of.calls.load(std::memory_order_relaxed);
  stats.errors = of.errors.load(std::memory_order_relaxed);
  stats.bytes = of.bytes.load(std::memory_order_relaxed);
  stats.staged_bytes = of.staged_bytes.load(std::memory_order_relaxed);
  stats.nccl_bytes = of.nccl_bytes.load(std::memory_order_relaxed);
  stats.in_place_bytes = of.in_place_bytes.load(std::memory_order_relaxed);
  stats.small_calls = of.small_calls.load(std::memory_order_relaxed);
  stats.waiting_seconds = Seconds(of.waiting_ns);
  stats.moving_seconds = Seconds(of.moving_ns);
  return stats;
}

void CommunicatorCounters::Take(bool reset, CommunicatorStats* stats) {
  std::lock_guard<std::mutex> lock(mu_);
  CommunicatorStats now;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    now.collectives[kind] = Read(kinds_[kind]);
    stats->collectives[kind] = now.collectives[kind];
    stats->collectives[kind].Subtract(before_.collectives[kind]);
  }
  now.batches = batches_.load(std::memory_order_relaxed);
  now.batch_bytes = batch_bytes_.load(std::memory_order_relaxed);
  now.deferred = deferred_.load(std::memory_order_relaxed);
  now.failures = failures_.load(std::memory_order_relaxed);
  now.steps = steps_.load(std::memory_order_relaxed);
  now.last_steps = last_steps_.load(std::memory_order_relaxed);
  now.blocked_seconds = Seconds(blocked_ns_);
  stats->batches = now.batches - before_.batches;
  stats->batch_bytes = now.batch_bytes - before_.batch_bytes;
  stats->deferred = now.deferred - before_.deferred;
  stats->failures = now.failures - before_.failures;
  stats->steps = now.steps - before_.steps;
  stats->last_steps = now.last_steps - before_.last_steps;
  {
    std::lock_guard<std::mutex> groups_lock(groups_mu_);
    const std::chrono::duration<double> time = last_step_ - first_step_;
    stats->step_seconds = stats->steps > 1 ? time.count() / static_cast<double>(stats->steps - 1) : 0.0;
    if (reset) first_step_ = Clock::time_point();
  }
  stats->blocked_seconds = now.blocked_seconds - before_.blocked_seconds;
  if (reset) before_ = std::move(now);
}

std::string ToJson(const EngineStats& stats) {
  std::string text = "{" + Field("rank", static_cast<std::uint64_t>(stats.rank)) + ", " +
                     Field("size", static_cast<std::uint64_t>(stats.size)) + ", " +
                     Field("arena_bytes", stats.arena_bytes) + ", " +
                     Field("arena_used_bytes", stats.arena_used_bytes) + ", " +
                     Field("arena_peak_bytes", stats.arena_peak_bytes) + ", " +
                     Field("arena_refused_calls", stats.arena_refused) +
                     ", \"collectives\": " + KindsToJson(stats.collectives) + ", \"process_sets\": [";
  bool first = true;
  for (const CommunicatorStats& each : stats.communicators) {
    text += first ? "{" : ", {";
    first = false;
    text += Field("id", std::uint64_t{each.id}) + ", \"ranks\": [";
    for (std::size_t i = 0; i < each.ranks.size(); ++i)
      text += (i > 0 ? ", " : "") + std::to_string(each.ranks[i]);
    text += "], " + Field("batches", each.batches) + ", " + Field("batch_bytes", each.batch_bytes) + ", " +
            Field("deferred", each.deferred) + ", " + Field("failures", each.failures) + ", " +
            Field("steps", each.steps) + ", " + Field("last_steps", each.last_steps) + ", " +
            Field("step_seconds", each.step_seconds) + ", " + Field("blocked_seconds", each.blocked_seconds) +
            ", \"collectives\": " + KindsToJson(each.collectives) + "}";
  }
  return text + "]}";
}

}  // namespace tf_smddp
