#include "kernels/collectives/backends/nccl/hosts_meeting.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace tf_smddp::nccl {

HostsMeeting::HostsMeeting(Wire* wire, std::uint32_t communicator, const std::vector<int>& ranks, RankId self)
    : wire_(wire), channel_{communicator, Wire::Channel::kNccl}, heard_(ranks.size(), Milestone::kNone) {
  for (const int rank : ranks) {
    if (RankId(rank) == self) rank_ = static_cast<int>(ranks_.size());
    ranks_.emplace_back(rank);
  }
}

Status HostsMeeting::Meet(bool packs, const UniqueId& id, bool* met, Agreed* agreed) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(is_here_, true)) Tell(ranks_.front(), {kHere, packs ? 1u : 0u, {}, {}});
  const Status status = Receive();
  if (status.ok() && IsFirst() && here_ == ranks_.size() && !all_are_here_) {
    agreed_.id = id;
    all_are_here_ = true;
    TellAll({kBegin, agreed_.all_pack ? 1u : 0u, {}, agreed_.id});
  }
  *met = status.ok() && all_are_here_;
  if (*met) *agreed = agreed_;
  return status;
}

bool HostsMeeting::AllHaveCome(Milestone milestone) {
  std::lock_guard<std::mutex> lock(mu_);
  if (said_ < milestone) {
    said_ = milestone;
    Tell(ranks_.front(), {kCome, 0, milestone, {}});
  }
  static_cast<void>(Receive());  // a message that makes no sense does not count
  return all_said_ >= milestone;
}

void HostsMeeting::Refuse(const std::string& text) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(asked_, true)) Tell(ranks_.front(), {kRefuse, 0, {}, {}}, text);
}

bool HostsMeeting::refused() {
  std::lock_guard<std::mutex> lock(mu_);
  static_cast<void>(Receive());
  return refused_;
}

bool HostsMeeting::TakeRefusal(std::string* text) {
  std::lock_guard<std::mutex> lock(mu_);
  if (refusal_.empty()) return false;
  *text = std::exchange(refusal_, "");
  return true;
}

std::vector<RankId> HostsMeeting::Missing(Milestone milestone) {
  std::lock_guard<std::mutex> lock(mu_);
  std::vector<RankId> missing;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (heard_[i] < milestone) missing.push_back(ranks_[i]);
  }
  return missing;
}

Status HostsMeeting::Receive() {
  for (Wire::Message received; wire_->Receive(channel_, &received);) {
    Message message;
    if (received.bytes.size() < sizeof message) {
      return Internal("rank " + std::to_string(received.from.value()) +
                      " sent a message about NCCL that this version does not understand");
    }
    std::memcpy(&message, received.bytes.data(), sizeof message);
    switch (message.kind) {
      case kHere:
        ++here_;
        if (message.packs == 0) agreed_.all_pack = false;
        break;
      case kBegin:
        agreed_ = {message.id, message.packs != 0};
        all_are_here_ = true;
        break;
      case kCome:
        Hear(received.from, message.milestone);
        break;
      case kAllHaveCome:
        all_said_ = message.milestone;
        break;
      case kRefuse:
        DecideToRefuse(received.bytes.substr(sizeof message));
        break;
      case kRefused:
        refused_ = true;
        break;
    }
  }
  return {};
}

// On the first rank. A start that was refused is not proven any more.
void HostsMeeting::Hear(RankId rank, Milestone milestone) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) return;
  heard_[static_cast<std::size_t>(found - ranks_.begin())] = milestone;
  const Milestone all = *std::min_element(heard_.begin(), heard_.end());
  if (all <= all_said_ || (all == Milestone::kProven && refused_)) return;
  all_said_ = all;
  TellAll({kAllHaveCome, 0, all, {}});
}

// On the first rank.
void HostsMeeting::DecideToRefuse(const std::string& text) {
  if (refused_ || all_said_ >= Milestone::kProven) return;
  refused_ = true;
  refusal_ = text;
  TellAll({kRefused, 0, {}, {}});
}

void HostsMeeting::Tell(RankId rank, const Message& message, const std::string& text) {
  static_assert(std::is_trivially_copyable_v<Message>);
  wire_->Send(rank, channel_,
              std::string(reinterpret_cast<const char*>(&message), sizeof message).append(text));
}

void HostsMeeting::TellAll(const Message& message) {
  for (std::size_t i = 1; i < ranks_.size(); ++i) Tell(ranks_[i], message);
}

}  // namespace tf_smddp::nccl
