#include "kernels/engine/express.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/collectives/collective.h"
#include "kernels/engine/spin_time.h"

namespace tf_smddp {
namespace {

// For how long a rank waits for the others: more than they are apart when they do the same; and more than one
// that sleeps needs.
constexpr std::chrono::microseconds kPatience{10}, kLongPatience{100};

// As often in a row it may be in vain before it is tried for some requests only: for one in two to the power
// of kFewer, which grows with every try.
constexpr unsigned kMostInVain = 4, kFewer = 5, kFewest = 10;

// Up to so many times what one rank does for all, copying it and doing it everywhere takes less than sharing
// the work (measured with 2 ranks).
constexpr std::uint64_t kTimesSmall = 4;

// Below this, looking at the clock takes longer than the work.
constexpr std::uint64_t kTimedBytes = 1 << 10;

std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  hash = ((hash + 0x9e3779b97f4a7c15u) ^ value) * 0xbf58476d1ce4e5b9u;
  return hash ^ hash >> 32;
}

std::uint64_t Bits(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Differs between requests that must not meet: of other manifests, or tickets.
std::uint64_t WhatOf(const Manifest& manifest, Pairing::Kind kind, std::uint64_t ticket) {
  std::uint64_t what = 0;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(kind), ticket, static_cast<std::uint64_t>(manifest.kind),
        static_cast<std::uint64_t>(manifest.dtype), static_cast<std::uint64_t>(manifest.op),
        static_cast<std::uint64_t>(manifest.shape_rank), static_cast<std::uint64_t>(manifest.root),
        std::uint64_t{manifest.num_params}, std::uint64_t{manifest.param_index}, manifest.count,
        manifest.dims_hash, Bits(manifest.prescale), Bits(manifest.postscale)}) {
    what = Mix(what, part);
  }
  return what;
}

}  // namespace

Express::Express(Communicator* communicator)
    : communicator_(communicator),
      most_bytes_(std::min<std::uint64_t>(
          kTimesSmall * static_cast<std::uint64_t>(communicator->config().small_bytes),
          ExpressLane::kMostBytes)),
      patience_(SpinTime(communicator->job(), communicator->job().size(), kPatience)),
      long_patience_(SpinTime(communicator->job(), communicator->job().size(), kLongPatience)),
      lane_(communicator->segment().OpenLane(communicator->index())) {
  if (const std::int64_t time = communicator->config().test_patience_us; time > 0) {
    patience_ = long_patience_ = std::chrono::microseconds(time);
  }
}

bool Express::Suits(const Request& request, std::uint64_t bytes) const {
  return patience_ > Clock::duration::zero() && request.assisted && bytes <= most_bytes_ &&
         request.pairing.kind != Pairing::kName &&
         FindCollective(request.kind).reach() == Collective::Reach::kAllOutputs &&
         communicator_->segment().active().load(std::memory_order_relaxed) == RankMask(communicator_->size());
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
    : express_(express), request_(request), bytes_(bytes) {
  if (!express->Suits(request, bytes)) return;
  const std::uint64_t what = WhatOf(manifest, request.pairing.kind, ticket);
  patience_ = express->Patience(what);
  if (patience_ == Clock::duration::zero()) return;
  lock_ = std::unique_lock<std::mutex>(express->mu_, std::try_to_lock);
  if (lock_.owns_lock()) express->lane_.Post(what, request.input, bytes);
}

bool Express::Try::Run(Cost* cost) {
  if (!lock_.owns_lock()) return false;
  const void* inputs[kMaxLocalRanks];
  std::atomic<unsigned>& in_vain = express_->in_vain_;
  if (!express_->lane_.Meet(patience_, inputs, &cost->waiting)) {
    in_vain.store(in_vain.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    lock_.unlock();
    return false;
  }
  in_vain.store(0, std::memory_order_relaxed);
  if (bytes_ == 0) return true;
  const bool worth_timing = bytes_ >= kTimedBytes;
  const Clock::time_point begin = worth_timing ? Clock::now() : Clock::time_point{};
  Communicator* const communicator = express_->communicator_;
  Call call;
  call.kind = request_.kind;
  call.dtype = request_.dtype;
  call.op = request_.op;
  call.prescale = request_.prescale;
  call.postscale = request_.postscale;
  call.num_ranks = communicator->size();
  call.root = request_.root < 0 ? -1 : communicator->IndexOf(request_.root);
  call.num_rows = bytes_ / DTypeBytes(request_.dtype);
  FindCollective(request_.kind).DirectOwn(call, inputs, request_.output);
  lock_.unlock();
  if (worth_timing) cost->moving = Clock::now() - begin;
  return true;
}

}  // namespace tf_smddp
