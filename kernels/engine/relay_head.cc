#include "kernels/engine/relay_head.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/engine/relay_data.h"

namespace tf_smddp {

RelayHead::RelayHead(MemberState* state, Relay relay)
    : state_(state),
      communicator_(state->communicator),
      channel_{communicator_->id(), Wire::Channel::kOrder},
      relay_(std::move(relay)),
      order_(communicator_->hosts()) {
  std::vector<int> all;
  for (const std::vector<int>& host : communicator_->hosts()) all.insert(all.end(), host.begin(), host.end());
  std::sort(all.begin(), all.end());
  for (const std::vector<int>& host : communicator_->hosts()) {
    std::vector<std::size_t>& places = places_.emplace_back();
    for (const int rank : host) {
      places.push_back(
          static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), rank) - all.begin()));
    }
  }
}

void RelayHead::Take(const RelayMessage& message, RankId from) {
  const std::vector<std::vector<int>>& hosts = communicator_->hosts();
  std::size_t host = 0;
  while (host < hosts.size() && !std::binary_search(hosts[host].begin(), hosts[host].end(), from.value())) {
    ++host;
  }
  if (host == hosts.size()) return;
  std::vector<RelayMessage> decisions;
  order_.Take(host, message, &decisions);
  for (RelayMessage& decision : decisions) Decide(std::move(decision));
}

void RelayHead::Decide(RelayMessage decision) {
  if (decision.kind != RelayMessage::kLaunch) {
    SealOpen();
    if (decision.kind == RelayMessage::kFail && decision.origin == 0) {
      decision.origin = state_->memory->NewOrigin();
    }
    return Publish(decision);
  }
  if (!decision.data.empty()) {
    decision.data = {ResultOf(decision.manifest, static_cast<int>(decision.parts.size()), decision.data)};
    // It is in no batch. Requests that all have reached before it are launched before it, since a
    // cancellation that comes after its end must not undo these.
    open_ |= !held_.empty();
    held_.push_back(std::move(decision));
    return Publish(std::exchange(held_, {}));
  }
  held_bytes_ += relay_.own_bytes(decision);
  held_.push_back(std::move(decision));
  if (held_bytes_ >= static_cast<std::uint64_t>(communicator_->config().bucket_cap_bytes)) SealOpen();
}

bool RelayHead::SealOpen() {
  held_bytes_ = 0;
  if (held_.empty() && !std::exchange(open_, false)) return false;
  open_ = false;
  if (held_.empty()) held_.emplace_back().kind = RelayMessage::kSeal;
  held_.back().seals = true;
  Publish(std::exchange(held_, {}));
  return true;
}

void RelayHead::Publish(const std::vector<RelayMessage>& decisions) {
  const std::vector<std::vector<int>>& hosts = communicator_->hosts();
  const bool differ = std::any_of(decisions.begin(), decisions.end(), &HasSplits);
  std::string bytes;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const RankId relay(hosts[host].front());
    if (relay.value() == communicator_->job().rank()) continue;
    if (differ || bytes.empty()) bytes = Encode(differ ? ForHost(host, decisions) : decisions);
    communicator_->wire().Send(relay, channel_, bytes);
  }
  for (const RelayMessage& decision : decisions) {
    relay_.obey(HasSplits(decision) ? WithSplitsFor(places_.front(), decision) : decision);
  }
}

// The splits of all ranks for all ranks would be too much to send to each host.
std::vector<RelayMessage> RelayHead::ForHost(std::size_t host, std::vector<RelayMessage> decisions) const {
  for (RelayMessage& decision : decisions) decision = WithSplitsFor(places_[host], std::move(decision));
  return decisions;
}

}  // namespace tf_smddp
