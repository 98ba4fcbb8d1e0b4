#include "kernels/collectives/backends/wire/gather_transfer.h"

#include <cstddef>
#include <cstring>

namespace tf_smddp {
namespace {

// Before the data of a message. Its size keeps them aligned.
struct alignas(16) Header {
  std::uint64_t incarnation;
  std::uint64_t number;
};

// What the participant brings that others read.
std::uint64_t SentBytes(const ResolvedRequest& request, ParticipantId participant) {
  const Call& call = request.call;
  if (call.root.valid() && participant != call.root) return 0;
  return request.collective->InputCount(call, participant) * DTypeBytes(call.operation.dtype);
}

}  // namespace

GatherTransfer::GatherTransfer(Wire* wire, std::uint32_t communicator, int index, int size,
                               std::uint64_t chunk_bytes)
    : wire_(wire),
      channel_{communicator, Wire::Channel::kData},
      chunks_(index, size, chunk_bytes),
      own_outputs_(chunk_bytes) {}

void GatherTransfer::Reset() {
  ++incarnation_;
  next_number_ = first_number_ = 0;
  chunks_.Reset();
  own_outputs_.Reset();
  wanted_.clear();
  early_.erase(early_.begin(), early_.lower_bound(Source{incarnation_, 0, 0}));
  messages_.clear();
  requests_.clear();
}

std::uint64_t GatherTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) {
  requests_.clear();
  wanted_.clear();
  messages_.clear();
  first_number_ = next_number_;
  next_number_ += requests.size();
  batch_ = batch;
  joined_ = false;
  MemberMask participants;
  for (const ResolvedRequest* request : requests) {
    requests_.push_back(*request);
    participants |= request->participants;
  }
  participants_ = static_cast<std::uint32_t>(participants.size());
  std::vector<const ResolvedRequest*> chunked, own;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    (requests_[i].all_outputs() ? chunked : own).push_back(&requests_[i]);
    if (requests_[i].ranks.empty()) continue;  // all others have left
    Send(requests_[i], first_number_ + i);
    Expect(i, first_number_ + i);
  }
  std::uint64_t units = chunks_.Plan(std::move(chunked), batch);
  units += own_outputs_.Plan(std::move(own), batch);
  return units;
}

void GatherTransfer::Send(const ResolvedRequest& request, std::uint64_t number) {
  const std::uint64_t bytes = SentBytes(request, request.self);
  if (bytes == 0) return;
  const Header header = {incarnation_, number};
  std::string message(sizeof header + bytes, '\0');
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, request.inputs[request.self.index()], bytes);
  for (std::size_t each = 0; each < request.ranks.size(); ++each) {
    if (!request.members[each].valid()) wire_->Send(request.ranks[each], channel_, message);
  }
}

void GatherTransfer::Expect(std::size_t index, std::uint64_t number) {
  const ResolvedRequest& request = requests_[index];
  for (const ParticipantId each : FirstIds<ParticipantId>(request.call.num_ranks)) {
    const std::uint64_t bytes = SentBytes(request, each);
    if (request.members[each.index()].valid() || bytes == 0) continue;
    const Source source{incarnation_, number, request.ranks[each.index()].value()};
    wanted_[source] = {index, each, bytes};
    if (const auto early = early_.find(source); early != early_.end()) {
      Take({request.ranks[each.index()], std::move(early->second)});
      early_.erase(early);
    }
  }
}

// True when it was wanted.
bool GatherTransfer::Take(Wire::Message message) {
  Header header;
  if (message.bytes.size() < sizeof header) return false;
  std::memcpy(&header, message.bytes.data(), sizeof header);
  const Source source{header.incarnation, header.number, message.from.value()};
  // What comes after its batch has ended is not needed any more: other ranks of this host have done it.
  if (source < Source{incarnation_, first_number_, 0}) return false;
  const auto wanted = wanted_.find(source);
  if (wanted == wanted_.end()) {
    early_[source] = std::move(message.bytes);
    return false;
  }
  if (message.bytes.size() != sizeof header + wanted->second.bytes) return false;
  messages_.push_back(std::move(message.bytes));
  requests_[wanted->second.request].inputs[wanted->second.participant.index()] =
      messages_.back().data() + sizeof header;
  wanted_.erase(wanted);
  return true;
}

bool GatherTransfer::Receive() {
  bool moved = false;
  Wire::Message message;
  while (!wanted_.empty() && wire_->Receive(channel_, &message)) moved |= Take(std::move(message));
  return moved;
}

Transfer::Progress GatherTransfer::Step() {
  if (!joined_) {
    // Plan has sent this rank's inputs. An output may take an input's place from now on.
    batch_->Join();
    joined_ = true;
    return {/*moved=*/true, /*unit_done=*/false, /*peers_wait=*/true};
  }
  if (batch_->joined() < participants_) return {};
  if (!wanted_.empty()) return {Receive(), /*unit_done=*/false, /*peers_wait=*/false};
  if (!chunks_.done()) {
    const Progress progress = chunks_.Step();
    if (progress.moved || own_outputs_.done()) return progress;
  }
  return own_outputs_.Step();
}

}  // namespace tf_smddp
