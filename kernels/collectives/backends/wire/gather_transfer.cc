#include "kernels/collectives/backends/wire/gather_transfer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tf_smddp {
namespace {

// Before the data of a message. Its size keeps them aligned.
struct alignas(16) Header {
  std::uint64_t incarnation;
  std::uint64_t number;
  std::uint64_t
      others;  // ranks of the receiver's host that need the message, too: bits of their places there
  std::uint64_t source;  // the rank whose input it is
};

// The part of `sender`'s input that `receiver` reads.
Shard PartFor(const ResolvedRequest& request, ParticipantId sender, ParticipantId receiver) {
  const Call& call = request.call;
  if (call.root.valid() && sender != call.root) return {0, 0};
  return request.collective->PartFor(call, sender, receiver);
}

const std::vector<int>& HostOf(const std::vector<std::vector<int>>& hosts, int rank) {
  std::size_t host = 0;
  while (!std::binary_search(hosts[host].begin(), hosts[host].end(), rank)) ++host;
  return hosts[host];
}

int PlaceOf(const std::vector<int>& ranks, RankId rank) {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank.value()) - ranks.begin());
}

}  // namespace

GatherTransfer::GatherTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts,
                               int rank, std::uint64_t chunk_bytes)
    : wire_(wire),
      channel_{communicator, Wire::Channel::kData},
      hosts_(std::move(hosts)),
      rank_(rank),
      here_(HostOf(hosts_, rank)),
      chunks_(PlaceOf(here_, RankId(rank)), static_cast<int>(here_.size()), chunk_bytes),
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

// Sends each participant on another host its part; but what all of a host need, once.
void GatherTransfer::Send(const ResolvedRequest& request, std::uint64_t number) {
  for (const std::vector<int>& host : hosts_) {
    if (&host == &here_) continue;
    MemberMask needing;  // by their places on that host
    std::vector<ParticipantId> receivers;
    std::vector<Shard> parts;
    for (const ParticipantId each : FirstIds<ParticipantId>(request.call.num_ranks)) {
      const RankId rank = request.ranks[each.index()];
      if (!std::binary_search(host.begin(), host.end(), rank.value())) continue;
      const Shard part = PartFor(request, request.self, each);
      if (part.count == 0) continue;
      needing |= MemberMask::Of(MemberId(PlaceOf(host, rank)));
      receivers.push_back(each);
      parts.push_back(part);
    }
    const bool all_the_same = std::all_of(parts.begin(), parts.end(), [&parts](const Shard& part) {
      return part.begin == parts.front().begin && part.count == parts.front().count;
    });
    if (receivers.empty()) continue;
    if (all_the_same) {
      // The senders take turns in whom they choose.
      const ParticipantId chosen = receivers[request.self.index() % receivers.size()];
      const RankId to = request.ranks[chosen.index()];
      SendPart(request, number, to, parts.front(), needing.Without(MemberId(PlaceOf(host, to))));
      continue;
    }
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      SendPart(request, number, request.ranks[receivers[i].index()], parts[i], MemberMask());
    }
  }
}

void GatherTransfer::SendPart(const ResolvedRequest& request, std::uint64_t number, RankId to, Shard part,
                              MemberMask others) {
  const std::uint64_t element_bytes = DTypeBytes(request.call.operation.dtype);
  const Header header = {incarnation_, number, others.bits(), static_cast<std::uint64_t>(rank_)};
  std::string message(sizeof header + part.count * element_bytes, '\0');
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(
      message.data() + sizeof header,
      static_cast<const std::byte*>(request.inputs[request.self.index()]) + part.begin * element_bytes,
      part.count * element_bytes);
  wire_->Send(to, channel_, std::move(message));
}

// Sends a message on to the ranks of this host that it names.
void GatherTransfer::Forward(const Wire::Message& message) {
  Header header;
  if (message.bytes.size() < sizeof header) return;
  std::memcpy(&header, message.bytes.data(), sizeof header);
  const MemberMask all = MemberMask::FirstN(static_cast<int>(here_.size()));
  const MemberMask others = all & MemberMask(std::exchange(header.others, 0));
  for (const MemberId each : others) {
    std::string copy = message.bytes;
    std::memcpy(copy.data(), &header, sizeof header);
    wire_->Send(RankId(here_[static_cast<std::size_t>(each.value())]), channel_, std::move(copy));
  }
}

void GatherTransfer::Expect(std::size_t index, std::uint64_t number) {
  const ResolvedRequest& request = requests_[index];
  for (const ParticipantId each : FirstIds<ParticipantId>(request.call.num_ranks)) {
    const Shard part = PartFor(request, each, request.self);
    if (request.members[each.index()].valid() || part.count == 0) continue;
    const std::uint64_t element_bytes = DTypeBytes(request.call.operation.dtype);
    const Source source{incarnation_, number, request.ranks[each.index()].value()};
    wanted_[source] = {index, each, part.begin * element_bytes, part.count * element_bytes};
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
  const Source source{header.incarnation, header.number, static_cast<int>(header.source)};
  // Data that comes after its batch has ended is not needed any more: other ranks of this host have done it.
  if (source < Source{incarnation_, first_number_, 0}) return false;
  const auto wanted = wanted_.find(source);
  if (wanted == wanted_.end()) {
    early_[source] = std::move(message.bytes);
    return false;
  }
  if (message.bytes.size() != sizeof header + wanted->second.bytes) return false;
  messages_.push_back(std::move(message.bytes));
  // Where the whole input would begin. Only the part is read.
  const auto part = reinterpret_cast<std::uintptr_t>(messages_.back().data() + sizeof header);
  requests_[wanted->second.request].inputs[wanted->second.participant.index()] =
      reinterpret_cast<const void*>(part - wanted->second.begin);
  wanted_.erase(wanted);
  return true;
}

bool GatherTransfer::Receive() {
  bool moved = false;
  Wire::Message message;
  while (!wanted_.empty() && wire_->Receive(channel_, &message)) {
    Forward(message);
    moved |= Take(std::move(message));
  }
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
