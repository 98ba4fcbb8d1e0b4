#include "kernels/engine/express.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/collectives/collective.h"
#include "kernels/common/rank_mask.h"
#include "kernels/engine/resolve.h"
#include "kernels/engine/spin_time.h"

namespace tf_smddp {
namespace {

// A rank waits for longer than ranks that do the same thing are apart; or, after misses, for longer than a
// rank that sleeps takes to wake.
constexpr std::chrono::microseconds kPatience{10}, kLongPatience{100};

// After kMaxMisses misses in a row one request in 2^kFirstPower enters, in the end one in 2^kLastPower.
constexpr unsigned kMaxMisses = 4, kFirstPower = 5, kLastPower = 10;

// Up to this many times small_bytes, it takes less time that each rank copies its data and makes its own
// output than that a batch is made (measured with 2 ranks).
constexpr std::uint64_t kTimesSmall = 4;

// Reading the clock takes longer than the work on fewer bytes.
constexpr std::uint64_t kTimedBytes = 1 << 10;

// After kLate the rank sleeps between looks, for kNap each, and the stall watch sees whom it waits for.
constexpr std::chrono::milliseconds kLate{5}, kNap{1};

// Mixes all bits of both into all bits of the result.
std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xbf58476d1ce4e5b9u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t Bits(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Returns a key that differs between requests that must not meet: those of other manifests, or other tickets.
std::uint64_t KeyOf(const Manifest& manifest, Pairing::Kind kind, std::uint64_t ticket) {
  const auto traits = static_cast<std::uint64_t>(kind) |
                      static_cast<std::uint64_t>(manifest.operation.kind) << 16 |
                      static_cast<std::uint64_t>(manifest.operation.dtype) << 24 |
                      static_cast<std::uint64_t>(manifest.operation.op) << 32 |
                      static_cast<std::uint64_t>(manifest.shape_rank) << 40 |
                      static_cast<std::uint64_t>(manifest.operation.compression) << 48;
  const auto root = static_cast<std::uint32_t>(manifest.operation.root.value());
  const std::uint64_t place = std::uint64_t{manifest.num_params} << 32 | manifest.param_index;
  const Meaning& meaning = manifest.meaning;
  // They run side by side.
  const std::uint64_t a = Mix(traits, ticket), b = Mix(place, root),
                      c = Mix(manifest.count, manifest.dims_hash),
                      d = Mix(Bits(manifest.operation.prescale), Bits(manifest.operation.postscale)),
                      e = Mix(meaning.name, std::uint64_t{meaning.gradient} << 32 | meaning.variable);
  return Mix(Mix(a, b + 1) ^ (e + 4), Mix(c + 2, d + 3));
}

}  // namespace

Express::Express(Communicator* communicator)
    : group_(&communicator->group()),
      max_bytes_(std::min<std::uint64_t>(
          kTimesSmall * static_cast<std::uint64_t>(communicator->config().small_bytes),
          ExpressLane::kMostBytes)),
      patience_(SpinTime(communicator->job(), communicator->job().local_size(), kPatience)),
      long_patience_(SpinTime(communicator->job(), communicator->job().local_size(), kLongPatience)),
      lane_(group_->segment().OpenLane(group_->index())) {
  if (const std::int64_t time = communicator->config().test_patience_us; time > 0) {
    patience_ = long_patience_ = std::chrono::microseconds(time);
  }
}

bool Express::Suits(const Request& request, std::uint64_t bytes) const {
  return patience_ > Clock::duration::zero() && request.caller_progresses && bytes <= max_bytes_ &&
         request.pairing.kind != Pairing::kName && request.input.on_host() && request.output.on_host() &&
         FindCollective(request.operation.kind).reach() == Collective::Reach::kAllOutputs &&
         group_->segment().active().load(std::memory_order_relaxed) ==
             MemberMask::FirstN(group_->size()).bits();
}

// Returns 0 when the request does not enter this time.
Clock::duration Express::Patience(std::uint64_t key) const {
  const unsigned misses = misses_.load(std::memory_order_relaxed);
  if (misses < kMaxMisses) return patience_;
  const unsigned power = std::min(kFirstPower + (misses - kMaxMisses), kLastPower);
  return key % (std::uint64_t{1} << power) == 0 ? long_patience_ : Clock::duration::zero();
}

Express::Try::Try(Express* express, const Request& request, const Manifest& manifest, std::uint64_t ticket,
                  std::uint64_t bytes)
    : express_(express), request_(request), manifest_(manifest), bytes_(bytes) {
  if (!express->Suits(request, bytes)) return;
  key_ = KeyOf(manifest, request.pairing.kind, ticket);
  patience_ = express->Patience(key_);
  if (patience_ > Clock::duration::zero()) turn_ = std::unique_lock<Turn>(express->turn_, std::try_to_lock);
}

void Express::Try::Post() {
  if (turn_.owns_lock()) express_->lane_.Post(key_, request_.input.data, bytes_);
}

bool Express::Try::Meet(const void** posted, Cost* cost) {
  ExpressLane& lane = express_->lane_;
  std::uint64_t behind;
  if (lane.Meet(patience_, kLate, posted, &behind, &cost->waiting)) return true;
  if (behind == 0) return false;
  const Clock::time_point since = Clock::now() - cost->waiting;
  bool met = false;
  while (!met && behind != 0) {
    express_->SetLate({manifest_, since, behind});
    std::this_thread::sleep_for(kNap);
    met = lane.Meet(patience_, Clock::duration::zero(), posted, &behind, &cost->waiting);
  }
  express_->SetLate({});
  cost->waiting = Clock::now() - since;
  return met;
}

bool Express::Try::Finish(Cost* cost) {
  if (!turn_.owns_lock()) return false;
  const void* posted[kMaxLocalRanks];
  const bool met = Meet(posted, cost);
  std::atomic<unsigned>& misses = express_->misses_;
  misses.store(met ? 0 : misses.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!met || bytes_ == 0) return met;
  const bool worth_timing = bytes_ >= kTimedBytes;
  const Clock::time_point begin = worth_timing ? Clock::now() : Clock::time_point{};
  const LocalGroup& group = *express_->group_;
  Call call = CallOf(request_);
  call.num_ranks = group.size();
  const RankId root = request_.operation.root;
  if (root.valid()) call.root = ParticipantId(group.IndexOf(root.value()));
  FindCollective(call.operation.kind).DirectOwn(call, posted, request_.output.data);
  cost->begun = begin;
  if (worth_timing) cost->moving = Clock::now() - begin;
  return true;
}

void Express::SetLate(const Late& late) {
  std::lock_guard<std::mutex> lock(mu_);
  late_ = late;
}

Express::Late Express::late() const {
  std::lock_guard<std::mutex> lock(mu_);
  return late_;
}

}  // namespace tf_smddp
