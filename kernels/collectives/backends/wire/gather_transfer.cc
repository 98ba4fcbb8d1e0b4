#include "kernels/collectives/backends/wire/gather_transfer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/common/rank_mask.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of a movement: MPI counts in int

const std::vector<int>& HostOf(const std::vector<std::vector<int>>& hosts, int rank) {
  std::size_t host = 0;
  while (!std::binary_search(hosts[host].begin(), hosts[host].end(), rank)) ++host;
  return hosts[host];
}

int PlaceOf(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

GatherTransfer::GatherTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts,
                               int rank, std::shared_ptr<void> inputs, std::uint64_t chunk_bytes)
    : wire_(wire),
      stream_(Wire::StreamOf(communicator, Wire::kGather)),
      hosts_(std::move(hosts)),
      memory_of_inputs_(std::move(inputs)),
      here_(HostOf(hosts_, rank)),
      chunks_(PlaceOf(here_, rank), static_cast<int>(here_.size()), chunk_bytes),
      own_outputs_(chunk_bytes) {}

// The wire keeps the memory of what is still under way.
void GatherTransfer::Abandon(const Status*) {
  joined_ = true;
  sends_.clear();
  coming_.clear();
  inputs_.clear();
  requests_.clear();
}

void GatherTransfer::Reset() {
  Abandon(nullptr);
  chunks_.Reset();
  own_outputs_.Reset();
}

// A unit is a chunk, or that a rank of this host has joined.
std::uint64_t GatherTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) {
  Abandon(nullptr);
  batch_ = batch;
  joined_ = requests.empty();
  MemberMask participants;
  for (const ResolvedRequest* request : requests) {
    requests_.push_back(*request);
    participants |= request->participants;
  }
  participants_ = static_cast<std::uint32_t>(participants.size());
  std::vector<const ResolvedRequest*> chunked, own;
  for (ResolvedRequest& request : requests_) {
    (request.all_outputs() ? chunked : own).push_back(&request);
    if (request.ranks.empty()) continue;  // all others have left
    Send(request);
    for (const ParticipantId each : FirstIds<ParticipantId>(request.call.num_ranks)) {
      if (!request.members[each.index()].valid()) Receive(&request, each);
    }
  }
  const std::uint64_t units =
      chunks_.Plan(std::move(chunked), batch) + own_outputs_.Plan(std::move(own), batch);
  return units + participants_;
}

// Where there are splits, a rank knows those for itself only; they go to each rank apart.
GatherTransfer::Routes GatherTransfer::RoutesOf(const ResolvedRequest& request, ParticipantId sender,
                                                const std::vector<int>& host) {
  Routes routes;
  bool the_same = !InfoOf(request.call.operation.kind).Is(kHasSplits);
  for (const ParticipantId each : FirstIds<ParticipantId>(request.call.num_ranks)) {
    const RankId rank = request.ranks[each.index()];
    if (!std::binary_search(host.begin(), host.end(), rank.value())) continue;
    const Shard part = request.collective->PartFor(request.call, sender, each);
    if (part.count == 0) continue;
    routes.receivers.push_back(rank);
    routes.parts.push_back(part);
    the_same = the_same && part.begin == routes.parts[0].begin && part.count == routes.parts[0].count;
  }
  // The senders take turns in whom they choose.
  const std::size_t receivers = routes.receivers.size();
  routes.chosen = the_same && receivers > 0 ? sender.index() % receivers : receivers;
  return routes;
}

// Sends this rank's input to the other hosts.
void GatherTransfer::Send(const ResolvedRequest& request) {
  const std::uint64_t element_bytes = DTypeBytes(request.call.operation.dtype);
  for (const std::vector<int>& host : hosts_) {
    if (&host == &here_) continue;
    const Routes routes = RoutesOf(request, request.self, host);
    for (std::size_t i = 0; i < routes.receivers.size(); ++i) {
      if (routes.chosen < routes.receivers.size() && i != routes.chosen) continue;
      const auto* const input = static_cast<const std::byte*>(request.inputs[request.self.index()]);
      BeginSend(routes.receivers[i], input + routes.parts[i].begin * element_bytes,
                routes.parts[i].count * element_bytes, memory_of_inputs_);
    }
  }
}

// Begins to receive what this rank needs of another host's input.
void GatherTransfer::Receive(ResolvedRequest* request, ParticipantId sender) {
  const Shard part = request->collective->PartFor(request->call, sender, request->self);
  if (part.count == 0) return;
  const std::uint64_t element_bytes = DTypeBytes(request->call.operation.dtype);
  const RankId self = request->ranks[request->self.index()];
  Coming& coming = coming_.emplace_back();
  RankId from = request->ranks[sender.index()];
  Routes routes = RoutesOf(*request, sender, here_);
  if (routes.chosen < routes.receivers.size()) {
    if (const RankId chosen = routes.receivers[routes.chosen]; chosen != self) {
      from = chosen;
    } else {
      routes.receivers.erase(routes.receivers.begin() + static_cast<std::ptrdiff_t>(routes.chosen));
      coming.others = std::move(routes.receivers);
    }
  }
  coming.bytes = part.count * element_bytes;
  coming.memory.reset(new std::byte[coming.bytes], [](const std::byte* memory) { delete[] memory; });
  for (std::uint64_t begin = 0; begin < coming.bytes; begin += kMostBytes) {
    coming.receives.push_back(wire_->BeginReceive(from, stream_, coming.memory.get() + begin,
                                                  std::min(kMostBytes, coming.bytes - begin), coming.memory));
  }
  // Where the whole input would begin. Only the part is read.
  const auto address = reinterpret_cast<std::uintptr_t>(coming.memory.get());
  request->inputs[sender.index()] = reinterpret_cast<const void*>(address - part.begin * element_bytes);
  inputs_.push_back(coming.memory);
}

void GatherTransfer::BeginSend(RankId to, const std::byte* data, std::uint64_t bytes,
                               const std::shared_ptr<void>& owner) {
  for (std::uint64_t begin = 0; begin < bytes; begin += kMostBytes) {
    sends_.push_back(wire_->BeginSend(to, stream_, data + begin, std::min(kMostBytes, bytes - begin), owner));
  }
}

// Forwards what has come. True when something has come.
bool GatherTransfer::Move() {
  bool moved = false;
  wire_->Poll();
  const auto all_ended = [this](std::vector<Wire::Movement>* movements) {
    while (!movements->empty() && wire_->Ended(movements->back())) movements->pop_back();
    return movements->empty();
  };
  for (; !coming_.empty() && all_ended(&coming_.front().receives); moved = true) {
    const Coming& first = coming_.front();
    for (const RankId other : first.others) BeginSend(other, first.memory.get(), first.bytes, first.memory);
    coming_.pop_front();
  }
  return (all_ended(&sends_) && coming_.empty()) || moved;
}

Transfer::Progress GatherTransfer::Step() {
  if (!joined_) {
    const bool moved = Move();
    joined_ = coming_.empty() && sends_.empty();
    // When all have joined, an output may take an input's place.
    if (joined_) batch_->Join();
    return {moved, /*unit_done=*/joined_, /*peers_wait=*/joined_};
  }
  if (batch_->joined() < participants_) return {};
  if (!chunks_.done()) {
    const Progress progress = chunks_.Step();
    if (progress.moved || own_outputs_.done()) return progress;
  }
  return own_outputs_.Step();
}

}  // namespace tf_smddp
