#include "kernels/engine/hosts/relay_head.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/engine/hosts/relay_data.h"

namespace tf_smddp {

RelayHead::RelayHead(MemberState* state, Descriptions* descriptions, Relay relay)
    : state_(state),
      descriptions_(descriptions),
      communicator_(state->communicator),
      channel_{communicator_->id(), Wire::Channel::kOrder},
      relay_(std::move(relay)),
      order_(communicator_->hosts()),
      host_of_(static_cast<std::size_t>(communicator_->job().size()), -1) {
  std::vector<int> all;
  for (const std::vector<int>& host : communicator_->hosts()) all.insert(all.end(), host.begin(), host.end());
  std::sort(all.begin(), all.end());
  for (const std::vector<int>& host : communicator_->hosts()) {
    std::vector<std::size_t>& places = places_.emplace_back();
    for (const int rank : host) {
      host_of_[static_cast<std::size_t>(rank)] = static_cast<int>(places_.size() - 1);
      places.push_back(
          static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), rank) - all.begin()));
    }
  }
}

void RelayHead::Take(const RelayMessage& message, RankId from) {
  const int host = host_of_[from.index()];
  if (host < 0) return;
  std::vector<RelayMessage> decisions;
  order_.Take(static_cast<std::size_t>(host), message, &decisions);
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
  const SharedDescription whole =
      std::exchange(decision.description, descriptions_->KeyOf(*decision.description));
  if (!decision.data.empty()) {
    const int num_ranks =
        decision.parts.empty() ? communicator_->size() : static_cast<int>(decision.parts.size());
    decision.data = {ResultOf(whole->manifest, num_ranks, decision.data)};
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

void RelayHead::Publish(std::vector<RelayMessage> decisions) {
  Number(&decisions, &numbers_);
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
