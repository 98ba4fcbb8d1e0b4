#include "kernels/engine/statistics.h"

#include <algorithm>
#include <cstdio>

namespace tf_smddp {
namespace {

constexpr double kNanosecond = 1e-9;

std::uint64_t Read(std::atomic<std::uint64_t>* counter, bool reset) {
  return reset ? counter->exchange(0, std::memory_order_relaxed) : counter->load(std::memory_order_relaxed);
}

// `"name": 12`
std::string Field(const char* name, std::uint64_t value) {
  return std::string("\"") + name + "\": " + std::to_string(value);
}

std::string Field(const char* name, double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "\"%s\": %.9f", name, seconds);
  return text;
}

std::string KindsToJson(const StatsByKind& kinds) {
  std::string text = "{";
  for (int number = 0; number < kNumCollectiveKinds; ++number) {
    const auto kind = static_cast<CollectiveKind>(number);
    if (kind == CollectiveKind::kCommunicator) continue;  // no call of the user's, and no data
    const CollectiveStats& stats = kinds[static_cast<std::size_t>(number)];
    text += text.size() > 1 ? ", " : "";
    text += std::string("\"") + CollectiveKindName(kind) + "\": {" + Field("calls", stats.calls) + ", " +
            Field("errors", stats.errors) + ", " + Field("bytes", stats.bytes) + ", " +
            Field("staged_bytes", stats.staged_bytes) + ", " + Field("in_place_bytes", stats.in_place_bytes) +
            ", " + Field("small_calls", stats.small_calls) + ", " +
            Field("express_calls", stats.express_calls) + ", " +
            Field("waiting_seconds", stats.waiting_seconds) + ", " +
            Field("moving_seconds", stats.moving_seconds) + "}";
  }
  return text + "}";
}

}  // namespace

void CollectiveStats::Add(const CollectiveStats& other) {
  calls += other.calls;
  errors += other.errors;
  bytes += other.bytes;
  staged_bytes += other.staged_bytes;
  in_place_bytes += other.in_place_bytes;
  small_calls += other.small_calls;
  express_calls += other.express_calls;
  waiting_seconds += other.waiting_seconds;
  moving_seconds += other.moving_seconds;
}

void AddByKind(const StatsByKind& from, StatsByKind* to) {
  for (std::size_t kind = 0; kind < from.size(); ++kind) (*to)[kind].Add(from[kind]);
}

void CommunicatorCounters::AddTime(Counter* counter, Clock::duration time) {
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  Add(counter, static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

void CommunicatorCounters::Completed(CollectiveKind kind, std::uint64_t bytes, const Cost& cost) {
  OfKind& of = Of(kind);
  Add(cost.express ? &of.express_calls : &of.calls, 1);
  Add(&of.bytes, bytes);
  if (cost.staged) Add(&of.staged_bytes, bytes);
  if (cost.in_place) Add(&of.in_place_bytes, bytes);
  if (cost.small && !cost.express) Add(&of.small_calls, 1);
  if (cost.waiting != Clock::duration::zero()) AddTime(&of.waiting_ns, cost.waiting);
  if (cost.moving != Clock::duration::zero()) AddTime(&of.moving_ns, cost.moving);
}

void CommunicatorCounters::Failed(CollectiveKind kind) { Add(&Of(kind).errors, 1); }

void CommunicatorCounters::Moved(CollectiveKind kind, Clock::duration time) {
  AddTime(&Of(kind).moving_ns, time);
}

void CommunicatorCounters::RanBatch(std::uint64_t bytes) {
  Add(&batches_, 1);
  Add(&batch_bytes_, bytes);
}

void CommunicatorCounters::Take(bool reset, CommunicatorStats* stats) {
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    OfKind& of = kinds_[kind];
    CollectiveStats& to = stats->collectives[kind];
    to.express_calls = Read(&of.express_calls, reset);
    to.calls = Read(&of.calls, reset) + to.express_calls;
    to.errors = Read(&of.errors, reset);
    to.bytes = Read(&of.bytes, reset);
    to.staged_bytes = Read(&of.staged_bytes, reset);
    to.in_place_bytes = Read(&of.in_place_bytes, reset);
    to.small_calls = Read(&of.small_calls, reset) + to.express_calls;
    to.waiting_seconds = static_cast<double>(Read(&of.waiting_ns, reset)) * kNanosecond;
    to.moving_seconds = static_cast<double>(Read(&of.moving_ns, reset)) * kNanosecond;
  }
  stats->batches = Read(&batches_, reset);
  stats->batch_bytes = Read(&batch_bytes_, reset);
  stats->deferred = Read(&deferred_, reset);
  stats->failures = Read(&failures_, reset);
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
            Field("deferred", each.deferred) + ", " + Field("failures", each.failures) +
            ", \"collectives\": " + KindsToJson(each.collectives) + "}";
  }
  return text + "]}";
}

}  // namespace tf_smddp
