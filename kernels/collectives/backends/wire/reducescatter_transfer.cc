#include "kernels/collectives/backends/wire/reducescatter_transfer.h"

#include <algorithm>
#include <utility>

#include "kernels/collectives/backends/wire/host_reduction.h"
#include "kernels/common/config.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kPieceBytes = 256 << 10;
constexpr std::size_t kSlots = 16;  // pieces that are under way at a time, in each direction

std::shared_ptr<std::byte> NewMemory(std::uint64_t bytes) {
  return {new std::byte[bytes], [](const std::byte* memory) { delete[] memory; }};
}

}  // namespace

ReducescatterTransfer::ReducescatterTransfer(Wire* wire, std::uint32_t communicator,
                                             std::vector<std::vector<int>> hosts, int rank)
    : wire_(wire), stream_(Wire::StreamOf(communicator, Wire::kReducescatter)), hosts_(std::move(hosts)) {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::vector<int>& ranks = hosts_[host];
    num_ranks_ += ranks.size();
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end() || *place != rank) continue;
    host_ = host;
    place_ = static_cast<std::size_t>(place - ranks.begin());
  }
}

bool ReducescatterTransfer::Takes(const ResolvedRequest& request) const {
  const Operation& operation = request.call.operation;
  return request.ranks.size() == num_ranks_ && operation.kind == CollectiveKind::kReducescatter &&
         HasPartialResults(operation);
}

Shard ReducescatterTransfer::ShardOf(const PiecePlan::Segment& segment, ParticipantId receiver) const {
  const ResolvedRequest& request = *requests_[segment.item];
  const Shard shard = request.collective->PartFor(request.call, request.self, receiver);
  return {shard.begin + segment.begin, segment.count};
}

PiecePlan ReducescatterTransfer::PlanOf(ParticipantId receiver) const {
  PiecePlan plan;
  for (const ResolvedRequest* request : requests_) {
    plan.Add(request->collective->PartFor(request->call, request->self, receiver).count,
             DTypeBytes(request->call.operation.dtype));
  }
  plan.Cut(kPieceBytes);
  return plan;
}

// A unit is a piece of a receiver. On this host, the receiver or the sender of its partial result does it.
std::uint64_t ReducescatterTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  requests_ = std::move(requests);
  to_send_.clear();
  next_send_ = own_pieces_ = next_receive_ = 0;
  if (requests_.empty()) return 0;
  const std::vector<RankId>& ranks = requests_.front()->ranks;
  std::uint64_t units = 0;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    for (std::size_t place = 0; place < hosts_[host].size(); ++place) {
      const RankId rank(hosts_[host][place]);
      const ParticipantId receiver(
          static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()));
      const PiecePlan plan = PlanOf(receiver);
      const std::uint64_t pieces = plan.pieces();
      units += pieces;
      if (host == host_ && place == place_) {
        own_ = plan;
        own_pieces_ = pieces;
      }
      if (host == host_ || place % hosts_[host_].size() != place_) continue;
      for (std::uint64_t piece = 0; piece < pieces; ++piece) to_send_.push_back({receiver, rank, piece});
    }
  }
  // Pieces for different hosts take turns, and each host begins with the one behind it.
  const auto order = [this](const Outgoing& outgoing) {
    std::size_t host = 0;
    while (!std::binary_search(hosts_[host].begin(), hosts_[host].end(), outgoing.rank.value())) ++host;
    return std::make_pair(outgoing.piece, (host + hosts_.size() - host_) % hosts_.size());
  };
  std::stable_sort(to_send_.begin(), to_send_.end(),
                   [&order](const Outgoing& a, const Outgoing& b) { return order(a) < order(b); });
  return units;
}

Transfer::Progress ReducescatterTransfer::Step() {
  Progress progress;
  progress.moved = true;
  wire_->Poll();
  if (EndReceive()) {
    progress.unit_done = true;
    return progress;
  }
  sending_.erase(std::remove_if(sending_.begin(), sending_.end(),
                                [this](Wire::Movement movement) { return wire_->Ended(movement); }),
                 sending_.end());
  if (next_receive_ < own_pieces_ && receiving_.size() < kSlots) {
    BeginReceive(next_receive_++);
  } else if (next_send_ < to_send_.size() && sending_.size() < kSlots) {
    BeginSend(to_send_[next_send_++]);
    progress.unit_done = true;  // the inputs have been read
  } else {
    progress.moved = false;
  }
  return progress;
}

void ReducescatterTransfer::BeginReceive(std::uint64_t piece) {
  Incoming& incoming = receiving_.emplace_back();
  incoming.piece = piece;
  const std::uint64_t bytes = own_.BytesOf(piece);
  incoming.memory = NewMemory(bytes * (hosts_.size() - 1));
  std::byte* next = incoming.memory.get();
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    incoming.partials.push_back(host == host_ ? nullptr : next);
    if (host == host_) continue;
    const RankId from(hosts_[host][place_ % hosts_[host].size()]);
    incoming.receives.push_back(wire_->BeginReceive(from, stream_, next, bytes, incoming.memory));
    next += bytes;
  }
}

void ReducescatterTransfer::BeginSend(const Outgoing& outgoing) {
  const PiecePlan plan = PlanOf(outgoing.receiver);
  const std::uint64_t bytes = plan.BytesOf(outgoing.piece);
  const std::shared_ptr<std::byte> memory = NewMemory(bytes);
  ReduceHere(plan, outgoing.receiver, outgoing.piece, memory.get());
  sending_.push_back(wire_->BeginSend(outgoing.rank, stream_, memory.get(), bytes, memory));
}

// True when a piece of the own shards has been written.
bool ReducescatterTransfer::EndReceive() {
  if (receiving_.empty()) return false;
  Incoming& incoming = receiving_.front();
  while (!incoming.receives.empty() && wire_->Ended(incoming.receives.back())) incoming.receives.pop_back();
  if (!incoming.receives.empty()) return false;
  const std::shared_ptr<std::byte> here = NewMemory(own_.BytesOf(incoming.piece));
  ReduceHere(own_, requests_.front()->self, incoming.piece, here.get());
  incoming.partials[host_] = here.get();
  for (const PiecePlan::Segment& segment :
       own_.SegmentsOf(incoming.piece, {0, own_.BytesOf(incoming.piece)})) {
    const ResolvedRequest& request = *requests_[segment.item];
    const Operation& operation = request.call.operation;
    std::vector<const void*> from;
    for (const std::byte* const partial : incoming.partials) from.push_back(partial + segment.offset);
    ReducePartials(operation, static_cast<int>(num_ranks_), from.data(), static_cast<int>(from.size()),
                   static_cast<std::byte*>(request.outputs[request.self.index()]) +
                       segment.begin * DTypeBytes(operation.dtype),
                   segment.count);
  }
  receiving_.pop_front();
  return true;
}

// Adds what the ranks of this host have of a piece.
void ReducescatterTransfer::ReduceHere(const PiecePlan& plan, ParticipantId receiver, std::uint64_t piece,
                                       std::byte* partial) {
  for (const PiecePlan::Segment& segment : plan.SegmentsOf(piece, {0, plan.BytesOf(piece)})) {
    const ResolvedRequest& request = *requests_[segment.item];
    const std::uint64_t offset = ShardOf(segment, receiver).begin * DTypeBytes(request.call.operation.dtype);
    const void* from[kMaxLocalRanks];
    int inputs = 0;
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
      if (!request.members[i].valid()) continue;  // on another host
      from[inputs++] = static_cast<const std::byte*>(request.inputs[i]) + offset;
    }
    ReduceOnHost(request.call.operation, static_cast<int>(num_ranks_), from, inputs, partial + segment.offset,
                 segment.count);
  }
}

// The wire keeps the memory of what is still under way.
void ReducescatterTransfer::Abandon(const Status*) {
  requests_.clear();
  to_send_.clear();
  receiving_.clear();
  sending_.clear();
  own_.Clear();
  next_send_ = own_pieces_ = next_receive_ = 0;
}

}  // namespace tf_smddp
