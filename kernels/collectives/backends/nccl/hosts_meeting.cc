#include "kernels/collectives/backends/nccl/hosts_meeting.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace tf_smddp::nccl {

HostsMeeting::HostsMeeting(Wire* wire, std::uint32_t communicator, const std::vector<int>& ranks, RankId self)
    : wire_(wire), channel_{communicator, Wire::Channel::kNccl} {
  for (const int rank : ranks) {
    if (RankId(rank) == self) rank_ = static_cast<int>(ranks_.size());
    ranks_.emplace_back(rank);
  }
}

Status HostsMeeting::Meet(bool packs, const std::function<Status(UniqueId*)>& make_id, bool* met,
                          Agreed* agreed) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(is_here_, true)) Tell(ranks_.front(), {kHere, packs ? 1u : 0u, {}});
  Status status = Receive();
  if (status.ok() && IsFirst() && here_ == ranks_.size() && !all_are_here_) {
    status = make_id(&agreed_.id);
    if (!status.ok()) return status;
    all_are_here_ = true;
    TellAll({kBegin, agreed_.all_pack ? 1u : 0u, agreed_.id});
  }
  *met = status.ok() && all_are_here_;
  if (*met) *agreed = agreed_;
  return status;
}

bool HostsMeeting::AllEnded() {
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(has_ended_, true)) Tell(ranks_.front(), {kEnded, 0, {}});
  static_cast<void>(Receive());  // a message that makes no sense does not count
  if (IsFirst() && ended_ == ranks_.size() && !std::exchange(all_ended_, true)) TellAll({kAllEnded, 0, {}});
  return all_ended_;
}

Status HostsMeeting::Receive() {
  for (Wire::Message received; wire_->Receive(channel_, &received);) {
    Message message;
    if (received.bytes.size() != sizeof message) {
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
      case kEnded:
        ++ended_;
        break;
      case kAllEnded:
        all_ended_ = true;
        break;
    }
  }
  return {};
}

void HostsMeeting::Tell(RankId rank, const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  wire_->Send(rank, channel_, std::string(reinterpret_cast<const char*>(&message), sizeof message));
}

void HostsMeeting::TellAll(const Message& message) {
  for (std::size_t i = 1; i < ranks_.size(); ++i) Tell(ranks_[i], message);
}

}  // namespace tf_smddp::nccl
