#include "kernels/engine/express.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "kernels/collectives/shard.h"
#include "kernels/common/rank_mask.h"
#include "kernels/engine/resolve.h"
#include "kernels/engine/spin_time.h"

namespace tf_smddp {
namespace {

// For how long a rank waits for the others: more than they are apart when they do the same; and more than one
// that sleeps needs.
constexpr std::chrono::microseconds kPatience{10}, kLongPatience{100};

// As often in a row it may be in vain before it is tried for some requests only: for one in two to the power
// of kFewer, which grows with every try.
constexpr unsigned kMostInVain = 4, kFewer = 5, kFewest = 10;

// Up to so many times what one rank does for all, copying it and doing it everywhere takes less than a batch
// (measured with 2 ranks).
constexpr std::uint64_t kTimesSmall = 4;

// Above the first and up to the second, a tensor that can be shared is. Below, copying it takes less; above,
// what a batch costs besides no longer counts (measured with 2 ranks).
constexpr std::uint64_t kMostCopied = 512, kMostShared = 1 << 20;

// Below this, looking at the clock takes longer than the work.
constexpr std::uint64_t kTimedBytes = 1 << 10;

// For how long others may be late with their parts until it is told, and it does not wait for them without
// sleeping.
constexpr std::chrono::milliseconds kLate{5}, kNap{1};

// Where parts begin that ranks write at the same time.
constexpr std::uint64_t kLineBytes = 64;

// All bits of both, in all bits of the result.
std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xbf58476d1ce4e5b9u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t Bits(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Differs between requests that must not meet: of other manifests, or tickets, or taken in another way.
std::uint64_t WhatOf(const Manifest& manifest, Pairing::Kind kind, std::uint64_t ticket, bool shared) {
  const auto traits =
      static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(shared) << 8 |
      static_cast<std::uint64_t>(manifest.kind) << 16 | static_cast<std::uint64_t>(manifest.dtype) << 24 |
      static_cast<std::uint64_t>(manifest.op) << 32 | static_cast<std::uint64_t>(manifest.shape_rank) << 40;
  const auto root = static_cast<std::uint32_t>(manifest.root);
  const std::uint64_t place = std::uint64_t{manifest.num_params} << 32 | manifest.param_index;
  // The four go side by side.
  const std::uint64_t a = Mix(traits, ticket), b = Mix(place, root),
                      c = Mix(manifest.count, manifest.dims_hash),
                      d = Mix(Bits(manifest.prescale), Bits(manifest.postscale));
  return Mix(Mix(a, b + 1), Mix(c + 2, d + 3));
}

}  // namespace

Express::Express(Communicator* communicator)
    : communicator_(communicator),
      most_copied_bytes_(std::min<std::uint64_t>(
          kTimesSmall * static_cast<std::uint64_t>(communicator->config().small_bytes),
          ExpressLane::kMostBytes)),
      most_shared_bytes_(
          most_copied_bytes_ > 0 && communicator->config().test_transfer_delay_ms == 0 ? kMostShared : 0),
      patience_(SpinTime(communicator->job(), communicator->job().size(), kPatience)),
      long_patience_(SpinTime(communicator->job(), communicator->job().size(), kLongPatience)),
      lane_(communicator->segment().OpenLane(communicator->index())) {
  if (const std::int64_t time = communicator->config().test_patience_us; time > 0) {
    patience_ = long_patience_ = std::chrono::microseconds(time);
  }
}

bool Express::Suits(const Request& request, std::uint64_t bytes) const {
  return patience_ > Clock::duration::zero() && request.assisted &&
         (bytes <= most_copied_bytes_ || MayShare(request, bytes)) &&
         request.pairing.kind != Pairing::kName &&
         FindCollective(request.kind).reach() == Collective::Reach::kAllOutputs &&
         communicator_->segment().active().load(std::memory_order_relaxed) ==
             MemberMask::FirstN(communicator_->size()).bits();
}

bool Express::MayShare(const Request& request, std::uint64_t bytes) const {
  return bytes > kMostCopied && bytes <= most_shared_bytes_ && request.pairing.num_params <= 1;
}

// 0: not this time.
Clock::duration Express::Patience(std::uint64_t what) const {
  const unsigned in_vain = in_vain_.load(std::memory_order_relaxed);
  if (in_vain < kMostInVain) return patience_;
  const unsigned power = std::min(kFewer + (in_vain - kMostInVain), kFewest);
  return what % (std::uint64_t{1} << power) == 0 ? long_patience_ : Clock::duration::zero();
}

Express::Try::Try(Express* express, const Request& request, const Manifest& manifest, std::uint64_t ticket,
                  std::uint64_t bytes)
    : express_(express), request_(request), manifest_(manifest), bytes_(bytes) {
  if (!express->Suits(request, bytes)) return;
  if (express->MayShare(request, bytes)) {
    const Arena& arena = express->communicator_->job().arena();
    own_ = {arena.OffsetOf(request.input, bytes), arena.OffsetOf(request.output, bytes)};
    shared_ = own_.input_offset != kNotInArena && own_.output_offset != kNotInArena;
  }
  if (!shared_ && bytes > express->most_copied_bytes_) return;
  const std::uint64_t what = WhatOf(manifest, request.pairing.kind, ticket, shared_);
  patience_ = express->Patience(what);
  if (patience_ == Clock::duration::zero()) return;
  turn_ = std::unique_lock<Turn>(express->turn_, std::try_to_lock);
  if (!turn_.owns_lock()) return;
  shared_ ? express->lane_.Post(what, &own_, sizeof own_) : express->lane_.Post(what, request.input, bytes);
}

// Calls `wait`, which waits in the lane, sets *waited and the members that are behind, until it is true, or
// none is. Who is late is told of, and is not waited for without sleeping.
template <typename Wait>
bool Express::Try::Await(const Wait& wait, Clock::duration* waited) {
  std::uint64_t behind;
  if (wait(kLate, &behind)) return true;
  if (behind == 0) return false;
  const Clock::time_point since = Clock::now() - *waited;
  bool done = false;
  while (!done && behind != 0) {
    express_->SetLate({manifest_, since, behind});
    std::this_thread::sleep_for(kNap);
    done = wait(Clock::duration::zero(), &behind);
  }
  express_->SetLate({});
  *waited = Clock::now() - since;
  return done;
}

bool Express::Try::Run(Cost* cost) {
  if (!turn_.owns_lock()) return false;
  const void* posted[kMaxLocalRanks];
  std::atomic<unsigned>& in_vain = express_->in_vain_;
  ExpressLane& lane = express_->lane_;
  const bool met = Await(
      [&](Clock::duration limit, std::uint64_t* behind) {
        return lane.Meet(patience_, limit, posted, behind, &cost->waiting);
      },
      &cost->waiting);
  in_vain.store(met ? 0 : in_vain.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return met && (bytes_ == 0 || Finish(posted, cost));
}

bool Express::Try::Finish(const void* const* posted, Cost* cost) {
  const bool worth_timing = bytes_ >= kTimedBytes;
  const Clock::time_point begin = worth_timing ? Clock::now() : Clock::time_point{};
  Communicator* const communicator = express_->communicator_;
  Call call = CallOf(request_);
  call.num_ranks = communicator->size();
  call.root = request_.root < 0 ? -1 : communicator->IndexOf(request_.root);
  if (!shared_) {
    FindCollective(call.kind).DirectOwn(call, posted, request_.output);
  } else if (!DoPart(call, posted)) {
    return false;
  }
  cost->begun = begin;
  if (worth_timing) cost->moving = Clock::now() - begin;
  if (!shared_) return true;
  Clock::duration waited{};
  ExpressLane& lane = express_->lane_;
  const bool all = Await([&](Clock::duration limit,
                             std::uint64_t* behind) { return lane.FinishTogether(limit, behind, &waited); },
                         &waited);
  cost->waiting += waited;
  return all;
}

void Express::SetLate(const Late& late) {
  std::lock_guard<std::mutex> lock(mu_);
  late_ = late;
}

Express::Late Express::late() const {
  std::lock_guard<std::mutex> lock(mu_);
  return late_;
}

// This rank's part, for all ranks. False when the job is aborted for what another rank has posted.
bool Express::Try::DoPart(const Call& call, const void* const* posted) const {
  Communicator* const communicator = express_->communicator_;
  const void* inputs[kMaxLocalRanks];
  void* outputs[kMaxLocalRanks];
  for (int member = 0; member < communicator->size(); ++member) {
    Whereabouts where;
    std::memcpy(&where, posted[member], sizeof where);
    const ArenaView& view = communicator->view(member);
    inputs[member] = view.Resolve(where.input_offset, bytes_);
    outputs[member] = view.Resolve(where.output_offset, bytes_);
    const bool own = member == communicator->index();
    if (inputs[member] == nullptr || outputs[member] == nullptr ||
        OverlapInPart(inputs[member], outputs[member], bytes_) ||
        (own && (where.input_offset != own_.input_offset || where.output_offset != own_.output_offset))) {
      communicator->job().Abort("the express lane is damaged: the place of " + DescribeManifest(manifest_) +
                                " that rank " + std::to_string(communicator->rank_of(member)) +
                                " has posted cannot be");
      return false;
    }
  }
  const Shard part =
      ShardOf(call.count(), communicator->size(), communicator->index(), kLineBytes / DTypeBytes(call.dtype));
  if (part.count == 0) return true;
  FindCollective(call.kind).Direct(call, communicator->index(), inputs, outputs, part.begin, part.count);
  return true;
}

}  // namespace tf_smddp
