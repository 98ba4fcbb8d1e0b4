#include "kernels/collectives/backends/wire/hierarchical_transfer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/collectives/host_reduction.h"
#include "kernels/common/config.h"

namespace tf_smddp {
namespace {

// Pieces of a rank that are under way at a time. With three hosts, 32 or 64 are no faster.
constexpr std::size_t kMostSlots = 16, kLeastSlots = 4;
constexpr std::uint64_t kLeastPieceBytes = 128 << 10;

// A host sends each other one its part of a piece. With many hosts pieces grow, so that a part has so many
// bytes: below that, the CPU that sends and receives messages is slower than a link of 10 Gbit/s
// (docs/cluster-model.md). Pieces of more than a few MiB would leave nothing to overlap in a bucket, so they
// grow up to kLargestPieceBytes, and then there are fewer of them.
constexpr std::uint64_t kPartBytes = 16 << 10;
constexpr std::uint64_t kLargestPieceBytes = 4 << 20;
constexpr std::uint64_t kMemoryBytes = 16 << 20;  // of the slots' results, at most

// Between two hosts a piece goes whole, in one round. Open MPI sends up to 64 KiB over TCP at once. Before it
// sends more, it asks the receiver, and question and answer wait behind what is on the link already. Measured
// with one rank on each host and Open MPI 4 over TCP, 100 MiB on a link of 5 Gbit/s, of what a plain stream
// takes: 1.05 times with 64 pieces of 60 KiB, 1.17 times with 16 of 256 KiB, 1.16 times with 32 of 256 KiB.
constexpr std::size_t kSlotsOfTwo = 64;
constexpr std::uint64_t kPieceBytesOfTwo = 60 << 10;

std::size_t MostSlots(std::size_t hosts, std::uint64_t piece_bytes) {
  if (hosts == 2) return kSlotsOfTwo;
  return std::clamp<std::size_t>(kMemoryBytes / piece_bytes, kLeastSlots, kMostSlots);
}

std::uint64_t LeastPieceBytes(std::size_t hosts) {
  if (hosts == 2) return kPieceBytesOfTwo;
  return std::clamp(hosts * kPartBytes, kLeastPieceBytes, kLargestPieceBytes / 2);
}

std::uint64_t MostPieceBytes(std::size_t hosts) {
  return hosts == 2 ? kPieceBytesOfTwo : 2 * LeastPieceBytes(hosts);
}

// A piece of so many bytes goes in one round.
constexpr std::uint64_t kWholeBytes = 16 << 10;

// Results of so many bytes or more are written past the cache.
constexpr std::uint64_t kPastCacheBytes = 4 << 20;

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// What goes to one rank of each host in a piece of reduce-scatters.
std::uint64_t ShardBytes(std::size_t hosts) {
  return hosts == 2 ? kPieceBytesOfTwo : RoundUp(MostPieceBytes(hosts) / hosts, PiecePlan::kGranule);
}

bool Scatters(const ResolvedRequest& request) {
  return request.call.operation.kind == CollectiveKind::kReducescatter;
}

}  // namespace

HierarchicalTransfer::HierarchicalTransfer(Wire* wire, std::uint32_t communicator,
                                           std::vector<std::vector<int>> hosts, int rank,
                                           std::shared_ptr<void> inputs)
    : wire_(wire),
      inputs_(std::move(inputs)),
      exchange_stream_(Wire::StreamOf(communicator, Wire::kExchange)),
      distribute_stream_(Wire::StreamOf(communicator, Wire::kDistribute)),
      hosts_(std::move(hosts)),
      whole_(HostExchange::Whole(hosts_.size())),
      direct_(HostExchange::Direct(hosts_.size())),
      least_piece_bytes_(LeastPieceBytes(hosts_.size())),
      most_piece_bytes_(MostPieceBytes(hosts_.size())),
      shard_bytes_(ShardBytes(hosts_.size())),
      most_slots_(MostSlots(hosts_.size(), most_piece_bytes_)) {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::vector<int>& ranks = hosts_[host];
    most_ranks_ = std::max<std::uint64_t>(most_ranks_, ranks.size());
    num_ranks_ += ranks.size();
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end() || *place != rank) continue;
    host_ = host;
    index_ = static_cast<std::uint64_t>(place - ranks.begin());
  }
  // A piece, and as much for the parts that come from all hosts; or, in one round, for their wholes.
  const std::uint64_t piece = std::max(most_piece_bytes_, hosts_.size() * shard_bytes_);
  const std::uint64_t parts = piece + hosts_.size() * PiecePlan::kGranule;
  memory_bytes_ = 2 * std::max<std::uint64_t>(parts, hosts_.size() * kWholeBytes);
}

bool HierarchicalTransfer::Takes(const ResolvedRequest& request) const {
  const Operation& operation = request.call.operation;
  return request.ranks.size() == num_ranks_ &&
         (ReducesByHosts(operation) || (Scatters(request) && HasPartialResults(operation)));
}

std::uint64_t HierarchicalTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  requests_ = std::move(requests);
  plan_.Clear();
  bool scatters = false;
  for (const ResolvedRequest* request : requests_) {
    scatters |= Scatters(*request);
    plan_.Add(Scatters(*request) ? 0 : request->call.count(),
              DTypeBytes(TypeOnWire(request->call.operation)));
  }
  // So many that the links of all ranks are busy from the beginning.
  const std::uint64_t even = RoundUp(plan_.bytes() / (most_ranks_ * most_slots_), PiecePlan::kGranule);
  plan_.Cut(std::clamp(even, least_piece_bytes_, most_piece_bytes_));
  past_cache_ = plan_.bytes() >= kPastCacheBytes;
  std::uint64_t of_shard = 0;
  for (const ParticipantId each : FirstIds<ParticipantId>(scatters ? static_cast<int>(num_ranks_) : 0)) {
    of_shard = std::max(of_shard, PlanOf(each).pieces());
  }
  pieces_ = plan_.pieces() + of_shard * most_ranks_;
  next_ = 0;
  Skip();
  return pieces_;
}

// The plan of what a rank gets of the reduce-scatters.
PiecePlan HierarchicalTransfer::PlanOf(ParticipantId receiver) const {
  PiecePlan plan;
  for (const ResolvedRequest* request : requests_) {
    const Shard shard = Scatters(*request)
                            ? request->collective->PartFor(request->call, request->self, receiver)
                            : Shard{0, 0};
    plan.Add(shard.count, DTypeBytes(TypeOnWire(request->call.operation)), shard.begin);
  }
  plan.Cut(shard_bytes_);
  return plan;
}

std::uint64_t HierarchicalTransfer::TurnOf(std::uint64_t piece) const {
  return piece < plan_.pieces() ? piece : (piece - plan_.pieces()) % most_ranks_;
}

// To the next piece that this rank carries.
void HierarchicalTransfer::Skip() {
  while (next_ < pieces_ && TurnOf(next_) % hosts_[host_].size() != index_) ++next_;
}

Transfer::Progress HierarchicalTransfer::Step() {
  Progress progress;
  wire_->Poll();
  std::size_t first = std::numeric_limits<std::size_t>::max();  // the first round that an earlier piece is in
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    if (slot->round < first && AllEnded(&slot->receives) && AllEnded(&slot->sends)) {
      progress.moved = true;
      progress.unit_done = EndRound(&*slot);
      if (progress.unit_done) {
        free_memory_.push_back(std::move(slot->memory));
        slots_.erase(slot);
      }
      return progress;
    }
    first = std::min(first, slot->round);
  }
  if (next_ >= pieces_ || slots_.size() >= most_slots_) return progress;
  Begin(next_++);
  Skip();
  progress.moved = true;
  return progress;
}

void HierarchicalTransfer::Begin(std::uint64_t piece) {
  Slot& slot = slots_.emplace_back();
  if (free_memory_.empty()) {
    slot.memory.reset(new std::byte[memory_bytes_](), [](const std::byte* memory) { delete[] memory; });
  } else {
    slot.memory = std::move(free_memory_.back());
    free_memory_.pop_back();
  }
  slot.turn = TurnOf(piece);
  slot.scatters = piece >= plan_.pieces();
  LayOut(piece, &slot);
  BeginRound(&slot);
}

// Finds the parts of a piece, and their places in memory.
void HierarchicalTransfer::LayOut(std::uint64_t piece, Slot* slot) const {
  const std::uint64_t bytes = slot->scatters ? 0 : plan_.BytesOf(piece);
  const bool whole = !slot->scatters && (bytes <= kWholeBytes || hosts_.size() == 2);
  slot->exchange = whole ? &whole_ : &direct_;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < slot->exchange->parts; ++i) {
    const std::size_t host = (host_ + i) % hosts_.size();
    PiecePlan::Part range = {0, 0};
    Part part = {};
    if (!slot->scatters) {
      range = PiecePlan::PartOf(bytes, slot->exchange->parts, whole ? 0 : host);
      part.segments = plan_.SegmentsOf(piece, range);
    } else if (slot->turn < hosts_[host].size()) {
      const std::vector<RankId>& ranks = requests_.front()->ranks;
      const auto receiver = std::find(ranks.begin(), ranks.end(), RankId(hosts_[host][slot->turn]));
      const PiecePlan plan = PlanOf(ParticipantId(static_cast<int>(receiver - ranks.begin())));
      const std::uint64_t of_shard = (piece - plan_.pieces()) / most_ranks_;
      if (of_shard < plan.pieces()) range.bytes = plan.BytesOf(of_shard);
      if (of_shard < plan.pieces()) part.segments = plan.SegmentsOf(of_shard, range);
    }
    for (PiecePlan::Segment& segment : part.segments) segment.offset -= range.begin;
    part.bytes = range.bytes;
    part.offset = offset;
    part.here = slot->memory.get() + offset;
    offset += RoundUp(part.bytes, PiecePlan::kGranule);
    slot->parts.push_back(std::move(part));
  }
}

void HierarchicalTransfer::BeginRound(Slot* slot) {
  const std::vector<HostExchange::Round>& rounds = slot->exchange->rounds;
  const std::size_t hosts = hosts_.size();
  slot->partials.clear();
  if (slot->round >= rounds.size()) {
    const HostExchange::Round& round = rounds[2 * rounds.size() - 1 - slot->round];
    for (const std::size_t distance : round.distances) {
      const std::size_t first = slot->exchange->First(distance);
      Receive(slot, distance, distribute_stream_, first, round.parts,
              slot->memory.get() + slot->parts[first].offset);
      Send(slot, hosts - distance, distribute_stream_, 0, round.parts);
    }
    return;
  }
  const HostExchange::Round& round = rounds[slot->round];
  std::byte* next = slot->memory.get() + memory_bytes_ / 2;
  slot->partials.emplace_back(host_, nullptr);
  for (const std::size_t distance : round.distances) {
    slot->partials.emplace_back((host_ + hosts - distance) % hosts, next);
    next = Receive(slot, hosts - distance, exchange_stream_, 0, round.parts, next);
  }
  std::sort(slot->partials.begin(), slot->partials.end());
  if (slot->round == 0) ReduceHere(slot);
  for (const std::size_t distance : round.distances) {
    Send(slot, distance, exchange_stream_, slot->exchange->First(distance), round.parts);
  }
}

bool HierarchicalTransfer::AllEnded(std::vector<Wire::Movement>* movements) {
  while (!movements->empty() && wire_->Ended(movements->back())) movements->pop_back();
  return movements->empty();
}

// True when it was the last.
bool HierarchicalTransfer::EndRound(Slot* slot) {
  const std::size_t reducing = slot->exchange->rounds.size();
  const bool distributes = slot->exchange->parts > 1 && !slot->scatters;
  if (slot->round < reducing) ReduceHosts(slot, /*writes=*/!distributes);
  if (++slot->round == (distributes ? 2 : 1) * reducing) {
    if (distributes) WriteOut(*slot);
    return true;
  }
  BeginRound(slot);
  return false;
}

RankId HierarchicalTransfer::CarrierAt(const Slot& slot, std::size_t distance) const {
  const std::vector<int>& ranks = hosts_[(host_ + distance) % hosts_.size()];
  return RankId(ranks[slot.turn % ranks.size()]);
}

// The bytes of `count` parts from number `first` on, as they lie in memory.
std::uint64_t HierarchicalTransfer::BytesOf(const Slot& slot, std::size_t first, std::size_t count) {
  const Part& last = slot.parts[first + count - 1];
  return last.offset + last.bytes - slot.parts[first].offset;
}

void HierarchicalTransfer::Send(Slot* slot, std::size_t distance, int stream, std::size_t first,
                                std::size_t count) {
  const std::uint64_t bytes = BytesOf(*slot, first, count);
  if (bytes == 0) return;
  const std::byte* const from = slot->parts[first].here;
  const bool lent = from != slot->memory.get() + slot->parts[first].offset;
  slot->sends.push_back(
      wire_->BeginSend(CarrierAt(*slot, distance), stream, from, bytes, lent ? inputs_ : slot->memory));
}

// Returns where there is room for the next ones.
std::byte* HierarchicalTransfer::Receive(Slot* slot, std::size_t distance, int stream, std::size_t first,
                                         std::size_t count, std::byte* to) {
  const std::uint64_t bytes = BytesOf(*slot, first, count);
  if (bytes == 0) return to;
  slot->receives.push_back(wire_->BeginReceive(CarrierAt(*slot, distance), stream, to, bytes, slot->memory));
  return to + RoundUp(bytes, PiecePlan::kGranule);
}

// Makes the partial result of this host. A part that lies in one input as it is to be sent stays there.
void HierarchicalTransfer::ReduceHere(Slot* slot) {
  const void* from[kMaxLocalRanks];
  for (Part& part : slot->parts) {
    for (const PiecePlan::Segment& segment : part.segments) {
      const Operation& operation = requests_[segment.item]->call.operation;
      const int inputs = InputsOf(segment, from);
      if (part.segments.size() == 1 && hosts_[host_].size() == 1 && inputs == 1 &&
          IsPartialResult(operation)) {
        part.here = static_cast<const std::byte*>(from[0]);
        break;
      }
      ReduceOnHost(operation, static_cast<int>(num_ranks_), from, inputs,
                   slot->memory.get() + part.offset + segment.offset, segment.count);
    }
  }
}

// Finds where the inputs that count of this host have a segment; returns how many there are.
int HierarchicalTransfer::InputsOf(const PiecePlan::Segment& segment, const void** from) const {
  const ResolvedRequest& request = *requests_[segment.item];
  const std::uint64_t offset = segment.begin * DTypeBytes(request.call.operation.dtype);
  int count = 0;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i] == nullptr || (request.call.root.valid() && i != request.call.root.index()))
      continue;
    from[count++] = static_cast<const std::byte*>(request.inputs[i]) + offset;
  }
  return count;
}

// Finds where the outputs of this host have a segment; returns how many there are.
int HierarchicalTransfer::OutputsOf(const PiecePlan::Segment& segment, void** to) const {
  const ResolvedRequest& request = *requests_[segment.item];
  std::uint64_t begin = segment.begin;
  if (Scatters(request)) begin -= request.collective->PartFor(request.call, request.self, request.self).begin;
  int count = 0;
  for (void* const output : request.outputs) {
    if (output == nullptr) continue;
    to[count++] = static_cast<std::byte*>(output) + begin * DTypeBytes(request.call.operation.dtype);
  }
  return count;
}

// Reduces the partial results of the first parts. `writes`: straight into the outputs of this host.
void HierarchicalTransfer::ReduceHosts(Slot* slot, bool writes) {
  std::vector<const void*> from(slot->partials.size());
  void* to[kMaxLocalRanks];
  for (std::size_t i = 0; i < slot->exchange->rounds[slot->round].parts; ++i) {
    Part& part = slot->parts[i];
    std::byte* const result = slot->memory.get() + part.offset;
    for (const PiecePlan::Segment& segment : part.segments) {
      const Operation& operation = requests_[segment.item]->call.operation;
      for (std::size_t k = 0; k < from.size(); ++k) {
        const std::byte* const partial = slot->partials[k].second;
        from[k] = (partial == nullptr ? part.here : partial + part.offset) + segment.offset;
      }
      const auto ranks = static_cast<int>(num_ranks_), partials = static_cast<int>(from.size());
      std::byte* const reduced = result + segment.offset;
      if (writes) {
        const int outputs = OutputsOf(segment, to);
        WriteReduced(operation, ranks, from.data(), partials, reduced, to, outputs, segment.count,
                     past_cache_);
      } else {
        ReducePartials(operation, ranks, from.data(), partials, reduced, segment.count);
      }
    }
    part.here = result;
  }
}

// Copies the result into all outputs of this host.
void HierarchicalTransfer::WriteOut(const Slot& slot) {
  void* to[kMaxLocalRanks];
  for (const Part& part : slot.parts) {
    for (const PiecePlan::Segment& segment : part.segments) {
      const int outputs = OutputsOf(segment, to);
      WriteResult(requests_[segment.item]->call.operation, slot.memory.get() + part.offset + segment.offset,
                  to, outputs, segment.count, past_cache_);
    }
  }
}

// The wire keeps the memory of what is still under way.
void HierarchicalTransfer::Abandon(const Status*) {
  requests_.clear();
  plan_.Clear();
  slots_.clear();
  pieces_ = next_ = 0;
}

}  // namespace tf_smddp
