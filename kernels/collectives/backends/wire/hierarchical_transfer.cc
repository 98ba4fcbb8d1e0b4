#include "kernels/collectives/backends/wire/hierarchical_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/collectives/backends/wire/host_reduction.h"
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

bool IsBroadcast(const ResolvedRequest& request) {
  return request.call.operation.kind == CollectiveKind::kBroadcast;
}

}  // namespace

HierarchicalTransfer::HierarchicalTransfer(Wire* wire, std::uint32_t communicator,
                                           std::vector<std::vector<int>> hosts, int rank,
                                           std::shared_ptr<void> inputs)
    : wire_(wire),
      inputs_(std::move(inputs)),
      communicator_(communicator),
      hosts_(std::move(hosts)),
      least_piece_bytes_(LeastPieceBytes(hosts_.size())),
      most_piece_bytes_(MostPieceBytes(hosts_.size())),
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
  partials_.resize(hosts_.size());
  // A partial result, a result, and the parts that come from all hosts; or, in one round, their wholes.
  const std::uint64_t parts = most_piece_bytes_ + hosts_.size() * PiecePlan::kGranule;
  memory_bytes_ = 2 * most_piece_bytes_ + std::max<std::uint64_t>(parts, hosts_.size() * kWholeBytes);
}

bool HierarchicalTransfer::Takes(const ResolvedRequest& request) const {
  return request.ranks.size() == num_ranks_ && ReducesByHosts(request.call.operation);
}

std::uint64_t HierarchicalTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  requests_ = std::move(requests);
  plan_.Clear();
  for (const ResolvedRequest* request : requests_) {
    plan_.Add(request->call.count(), DTypeBytes(TypeOnWire(request->call.operation)));
  }
  // So many that the links of all ranks are busy from the beginning.
  const std::uint64_t even = RoundUp(plan_.bytes() / (most_ranks_ * most_slots_), PiecePlan::kGranule);
  plan_.Cut(std::clamp(even, least_piece_bytes_, most_piece_bytes_));
  past_cache_ = plan_.bytes() >= kPastCacheBytes;
  next_ = index_;
  open_ = 0;
  return plan_.pieces();
}

RankId HierarchicalTransfer::CarrierOn(std::size_t host, std::uint64_t piece) const {
  return RankId(hosts_[host][piece % hosts_[host].size()]);
}

PiecePlan::Part HierarchicalTransfer::OwnPart(const Slot& slot) const {
  if (slot.whole) return {0, slot.bytes};
  return PiecePlan::PartOf(slot.bytes, hosts_.size(), host_);
}

Transfer::Progress HierarchicalTransfer::Step() {
  Progress progress;
  wire_->Poll();
  bool first_of_round = true;  // no earlier piece is in its first round
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    const bool was_open = slot->state != Slot::kDraining;
    if (Advance(&*slot, first_of_round)) {
      progress.moved = true;
      progress.unit_done = was_open && slot->state == Slot::kDraining;
      if (progress.unit_done) --open_;
      break;
    }
    first_of_round &= slot->state != Slot::kExchanging;
  }
  while (!slots_.empty() && slots_.front().state == Slot::kDraining && slots_.front().sends.empty()) {
    free_memory_.push_back(std::move(slots_.front().memory));
    slots_.pop_front();
  }
  if (progress.moved || next_ >= plan_.pieces() || slots_.size() >= most_slots_) return progress;
  Begin(next_);
  next_ += hosts_[host_].size();
  progress.moved = true;
  return progress;
}

std::shared_ptr<std::byte> HierarchicalTransfer::TakeMemory() {
  if (free_memory_.empty()) {
    return {new std::byte[memory_bytes_](), [](const std::byte* memory) { delete[] memory; }};
  }
  std::shared_ptr<std::byte> memory = std::move(free_memory_.back());
  free_memory_.pop_back();
  return memory;
}

// Reduces what this host has of the piece, and sends it.
void HierarchicalTransfer::Begin(std::uint64_t piece) {
  Slot& slot = slots_.emplace_back();
  ++open_;
  slot.piece = piece;
  slot.bytes = plan_.BytesOf(piece);
  slot.whole = slot.bytes <= kWholeBytes || hosts_.size() == 2;
  slot.memory = TakeMemory();
  slot.result = slot.memory.get() + most_piece_bytes_;
  std::byte* next = slot.result + most_piece_bytes_;
  const PiecePlan::Part own = OwnPart(slot);
  slot.others.assign(hosts_.size(), nullptr);
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (host == host_ || own.bytes == 0) continue;
    slot.others[host] = next;
    slot.receives.push_back(wire_->BeginReceive(CarrierOn(host, piece),
                                                Wire::StreamOf(communicator_, Wire::kExchange), next,
                                                own.bytes, slot.memory));
    next += RoundUp(own.bytes, PiecePlan::kGranule);
  }
  slot.partial = LoneInput(piece);
  slot.lent = slot.partial != nullptr;
  if (!slot.lent) {
    ReduceHere(piece, slot.bytes, slot.memory.get());
    slot.partial = slot.memory.get();
  }
  // Each begins with the host behind its own, so that not all send to one at a time.
  for (std::size_t step = 1; step < hosts_.size(); ++step) {
    const std::size_t host = (host_ + step) % hosts_.size();
    const PiecePlan::Part part = slot.whole ? own : PiecePlan::PartOf(slot.bytes, hosts_.size(), host);
    if (part.bytes == 0) continue;
    slot.sends.push_back(
        wire_->BeginSend(CarrierOn(host, piece), Wire::StreamOf(communicator_, Wire::kExchange),
                         slot.partial + part.begin, part.bytes, slot.lent ? inputs_ : slot.memory));
  }
}

bool HierarchicalTransfer::AllEnded(std::vector<Wire::Movement>* movements) {
  while (!movements->empty() && wire_->Ended(movements->back())) movements->pop_back();
  return movements->empty();
}

// True when it has come into another state, or its sends have ended.
bool HierarchicalTransfer::Advance(Slot* slot, bool first_of_round) {
  switch (slot->state) {
    case Slot::kExchanging: {
      if (!first_of_round || !AllEnded(&slot->receives)) return false;
      if (slot->whole) {
        if (slot->lent && !AllEnded(&slot->sends)) return false;
        ReduceAndWriteOut(*slot);
        slot->state = Slot::kDraining;
        return true;
      }
      ReduceHosts(slot);
      const PiecePlan::Part own = OwnPart(*slot);
      for (std::size_t step = 1; step < hosts_.size(); ++step) {
        const std::size_t host = (host_ + step) % hosts_.size();
        const RankId peer = CarrierOn(host, slot->piece);
        const PiecePlan::Part part = PiecePlan::PartOf(slot->bytes, hosts_.size(), host);
        if (part.bytes > 0) {
          slot->receives.push_back(wire_->BeginReceive(peer, Wire::StreamOf(communicator_, Wire::kDistribute),
                                                       slot->result + part.begin, part.bytes, slot->memory));
        }
        if (own.bytes > 0) {
          slot->sends.push_back(wire_->BeginSend(peer, Wire::StreamOf(communicator_, Wire::kDistribute),
                                                 slot->result + own.begin, own.bytes, slot->memory));
        }
      }
      slot->state = Slot::kDistributing;
      return true;
    }
    case Slot::kDistributing:
      if (!AllEnded(&slot->receives) || (slot->lent && !AllEnded(&slot->sends))) return false;
      WriteOut(*slot);
      slot->state = Slot::kDraining;
      return true;
    case Slot::kDraining:
      return !slot->sends.empty() && AllEnded(&slot->sends);
  }
  return false;
}

// Returns where an input has what this host contributes to the piece, if it need not be reduced or packed.
const std::byte* HierarchicalTransfer::LoneInput(std::uint64_t piece) const {
  if (hosts_[host_].size() > 1) return nullptr;
  const std::vector<PiecePlan::Segment> segments = plan_.SegmentsOf(piece, {0, plan_.BytesOf(piece)});
  const ResolvedRequest& request = *requests_[segments.front().item];
  if (segments.size() > 1 || !IsPartialResult(request.call.operation)) return nullptr;
  const void* from[kMaxLocalRanks];
  if (InputsOf(segments.front(), from) == 0) return nullptr;
  return static_cast<const std::byte*>(from[0]);
}

// Finds where the inputs that count of this host have a segment; returns how many there are.
int HierarchicalTransfer::InputsOf(const PiecePlan::Segment& segment, const void** from) const {
  const ResolvedRequest& request = *requests_[segment.item];
  const std::uint64_t offset = segment.begin * DTypeBytes(request.call.operation.dtype);
  int count = 0;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i] == nullptr || (IsBroadcast(request) && i != request.call.root.index())) continue;
    from[count++] = static_cast<const std::byte*>(request.inputs[i]) + offset;
  }
  return count;
}

void HierarchicalTransfer::ReduceHere(std::uint64_t piece, std::uint64_t bytes, std::byte* partial) {
  const void* from[kMaxLocalRanks];
  for (const PiecePlan::Segment& segment : plan_.SegmentsOf(piece, {0, bytes})) {
    const int inputs = InputsOf(segment, from);
    if (inputs == 0) continue;  // the root is on another host
    ReduceOnHost(requests_[segment.item]->call.operation, static_cast<int>(num_ranks_), from, inputs,
                 partial + segment.offset, segment.count);
  }
}

// Finds the partial results of a segment of the own part, in the order of the hosts; returns how many.
int HierarchicalTransfer::PartialsOf(const Slot& slot, const PiecePlan::Segment& segment,
                                     const void** from) const {
  const ResolvedRequest& request = *requests_[segment.item];
  const std::uint64_t in_part = segment.offset - OwnPart(slot).begin;
  int count = 0;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (IsBroadcast(request) && !IsOn(host, request.ranks[request.call.root.index()])) continue;
    from[count++] = host == host_ ? slot.partial + segment.offset : slot.others[host] + in_part;
  }
  return count;
}

// Finds where the outputs of this host have a segment; returns how many there are.
int HierarchicalTransfer::OutputsOf(const PiecePlan::Segment& segment, void** to) const {
  const ResolvedRequest& request = *requests_[segment.item];
  const std::uint64_t offset = segment.begin * DTypeBytes(request.call.operation.dtype);
  int count = 0;
  for (void* const output : request.outputs) {
    if (output != nullptr) to[count++] = static_cast<std::byte*>(output) + offset;
  }
  return count;
}

bool HierarchicalTransfer::IsOn(std::size_t host, RankId rank) const {
  return std::binary_search(hosts_[host].begin(), hosts_[host].end(), rank.value());
}

// Reduces the partial results of the own part.
void HierarchicalTransfer::ReduceHosts(Slot* slot) {
  for (const PiecePlan::Segment& segment : plan_.SegmentsOf(slot->piece, OwnPart(*slot))) {
    const int partials = PartialsOf(*slot, segment, partials_.data());
    ReducePartials(requests_[segment.item]->call.operation, static_cast<int>(num_ranks_), partials_.data(),
                   partials, slot->result + segment.offset, segment.count);
  }
}

// Copies the result into all outputs of this host.
void HierarchicalTransfer::WriteOut(const Slot& slot) {
  void* to[kMaxLocalRanks];
  for (const PiecePlan::Segment& segment : plan_.SegmentsOf(slot.piece, {0, slot.bytes})) {
    const int outputs = OutputsOf(segment, to);
    WriteResult(requests_[segment.item]->call.operation, slot.result + segment.offset, to, outputs,
                segment.count, past_cache_);
  }
}

// Both, of a piece that went in one round.
void HierarchicalTransfer::ReduceAndWriteOut(const Slot& slot) {
  void* to[kMaxLocalRanks];
  for (const PiecePlan::Segment& segment : plan_.SegmentsOf(slot.piece, {0, slot.bytes})) {
    const int partials = PartialsOf(slot, segment, partials_.data());
    const int outputs = OutputsOf(segment, to);
    WriteReduced(requests_[segment.item]->call.operation, static_cast<int>(num_ranks_), partials_.data(),
                 partials, slot.result + segment.offset, to, outputs, segment.count, past_cache_);
  }
}

// The wire keeps the memory of what is still under way.
void HierarchicalTransfer::Abandon(const Status*) {
  requests_.clear();
  plan_.Clear();
  slots_.clear();
  open_ = 0;
}

void HierarchicalTransfer::Reset() { Abandon(nullptr); }

}  // namespace tf_smddp
