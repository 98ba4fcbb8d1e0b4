#include "kernels/mpi/silence.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/common/wire.h"

namespace tf_smddp::mpi {
namespace {

constexpr std::chrono::seconds kBeat{1};

// A thread that did not run for so long was stopped, with the whole job perhaps.
constexpr std::chrono::seconds kWasStopped{2};

}  // namespace

Silence::Silence(const Runtime* runtime, const Hosts* hosts, const Config& config)
    : runtime_(runtime),
      hosts_(hosts),
      rank_(config.rank),
      host_timeout_(std::chrono::milliseconds(config.host_timeout_ms)),
      call_timeout_(std::chrono::milliseconds(config.host_timeout_ms > 0 ? config.host_timeout_ms
                                                                         : config.stall_timeout_ms)),
      first_beat_timeout_(
          std::max<Clock::duration>(host_timeout_, std::chrono::seconds(config.bootstrap_timeout_seconds))) {
  const std::vector<std::vector<int>>& ranks = hosts_->ranks;
  for (std::size_t host = 0; host < ranks.size(); ++host) {
    if (ranks[host].front() != rank_) continue;
    beats_to_ = ranks[(host + 1) % ranks.size()].front();
    beats_from_ = ranks[(host + ranks.size() - 1) % ranks.size()].front();
  }
}

void Silence::Start() {
  next_beat_ = looked_ = Clock::now();
  heard_.store(next_beat_.time_since_epoch().count());
}

int Silence::NextBeat() {
  const Clock::time_point now = Clock::now();
  if (beats_to_ < 0 || now < next_beat_) return -1;
  next_beat_ = now + kBeat;
  return beats_to_;
}

void Silence::Hear() {
  heard_.store(Clock::now().time_since_epoch().count());
  heard_any_.store(true);
}

std::string Silence::Reason() {
  const Clock::time_point now = Clock::now();
  const bool was_stopped = now - std::exchange(looked_, now) > kWasStopped;
  if (was_stopped) heard_.store(now.time_since_epoch().count());
  if (was_stopped) return "";
  const bool off = host_timeout_ == Clock::duration::zero();
  const auto seconds = [off](Clock::duration time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) +
           (off ? " s, SMDDP_STALL_TIMEOUT" : " s, SMDDP_HOST_TIMEOUT");
  };
  const Clock::duration turn = runtime_->TurnLasts();
  // Also if nobody asks whether hosts are silent: the thread that is in the call cannot be ended in good
  // order.
  if (turn > call_timeout_ && call_timeout_ > Clock::duration::zero()) {
    std::size_t other = 0;
    while (std::binary_search(hosts_->ranks[other].begin(), hosts_->ranks[other].end(), rank_)) ++other;
    return "a call of MPI on rank " + std::to_string(rank_) + " has not returned for " +
           seconds(call_timeout_) + ": " +
           (hosts_->names.size() == 2 ? hosts_->names[other] : "another host") +
           " or a rank there has died, or the network failed";
  }
  if (off || turn > kBeat) return "";  // no beats are taken meanwhile
  const Clock::duration limit = heard_any_.load() ? host_timeout_ : first_beat_timeout_;
  if (beats_from_ < 0 || now.time_since_epoch() - Clock::duration(heard_.load()) <= limit) return "";
  std::size_t host = 0;
  while (hosts_->ranks[host].front() != beats_from_) ++host;
  return DescribeLoss({RankId(beats_from_), hosts_->names[host] + " has been silent for " + seconds(limit)});
}

}  // namespace tf_smddp::mpi
