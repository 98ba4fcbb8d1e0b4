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
// grow up to kLargestPieceBytes.
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

// Where parts would be smaller, hosts exchange in groups: fewer messages, in twice as many rounds. By
// simulation (docs/cluster-model.md) that is 10 to 25 % slower for a tensor of that size on 32 hosts with
// links of 10 Gbit/s, and 1.5 times as fast with 100 Gbit/s. With fewer hosts there is little to gain.
constexpr std::size_t kLeastGroupedHosts = 32;
constexpr std::size_t kMostDirectHosts = kLargestPieceBytes / 2 / kPartBytes;  // for tensors of any size

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

// The shards for one rank of each host in a piece of reduce-scatters.
std::uint64_t ShardBytes(std::size_t hosts) {
  return hosts == 2 ? kPieceBytesOfTwo : RoundUp(MostPieceBytes(hosts) / hosts, PiecePlan::kGranule);
}

// The sum of a group of hosts is stored, which is larger than the average. Float16 may have no room for it.
bool MayOverflow(const Operation& operation) {
  return operation.dtype == DType::kFloat16 && operation.op == ReduceOp::kAverage;
}

bool Scatters(const ResolvedRequest& request) {
  return request.call.operation.kind == CollectiveKind::kReducescatter;
}

}  // namespace

HierarchicalTransfer::HierarchicalTransfer(Wire* wire, std::uint32_t communicator,
                                           std::vector<std::vector<int>> hosts, int rank,
                                           std::shared_ptr<void> inputs, std::size_t grouped_hosts)
    : wire_(wire),
      inputs_(std::move(inputs)),
      exchange_stream_(Wire::StreamOf(communicator, Wire::kExchange)),
      distribute_stream_(Wire::StreamOf(communicator, Wire::kDistribute)),
      hosts_(std::move(hosts)),
      grouped_hosts_(grouped_hosts),
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
  whole_ = HostExchange::Whole(hosts_.size(), host_);
  direct_ = HostExchange::Direct(hosts_.size(), host_);
  grouped_ = HostExchange::Grouped(hosts_.size(), host_);
  // A piece, and as much for what comes in a round.
  const std::uint64_t piece = std::max(most_piece_bytes_, hosts_.size() * shard_bytes_);
  const std::uint64_t wholes = hosts_.size() < kLeastGroupedHosts ? hosts_.size() * kWholeBytes : 0;
  memory_bytes_ = 2 * std::max(piece + hosts_.size() * PiecePlan::kGranule, wholes);
}

bool HierarchicalTransfer::Takes(const ResolvedRequest& request) const {
  const Operation& operation = request.call.operation;
  return request.ranks.size() == num_ranks_ &&
         (ReducesByHosts(operation) || (Scatters(request) && HasPartialResults(operation)));
}

// It is about the tensor and not about its batch, which is another one in another run.
bool HierarchicalTransfer::InGroups(const ResolvedRequest& request) const {
  if (MayOverflow(request.call.operation)) return false;
  if (grouped_hosts_ > 0) return hosts_.size() >= grouped_hosts_;
  const std::uint64_t bytes = request.call.count() * DTypeBytes(TypeOnWire(request.call.operation));
  return hosts_.size() > kMostDirectHosts ||
         (hosts_.size() >= kLeastGroupedHosts && bytes < hosts_.size() * kPartBytes);
}

std::uint64_t HierarchicalTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  requests_ = std::move(requests);
  bundles_.clear();
  past_cache_ = false;
  pieces_ = next_ = 0;
  // First direct exchanges: groups reach some hosts in a later round only, and what moves between two
  // ranks must have one order.
  for (const bool grouped : {false, true}) {
    AddBundle(grouped, /*scatters=*/false);
    AddBundle(grouped, /*scatters=*/true);
  }
  Skip();
  return pieces_;
}

bool HierarchicalTransfer::IsIn(const Bundle& bundle, const ResolvedRequest& request) const {
  return InGroups(request) == bundle.grouped && Scatters(request) == bundle.scatters;
}

void HierarchicalTransfer::AddBundle(bool grouped, bool scatters) {
  Bundle bundle = {grouped, scatters, {}, pieces_, pieces_};
  const auto is_in = [&](const ResolvedRequest* request) { return IsIn(bundle, *request); };
  if (std::none_of(requests_.begin(), requests_.end(), is_in)) return;
  if (scatters) {
    std::uint64_t of_shard = 0;
    for (const ParticipantId each : FirstIds<ParticipantId>(static_cast<int>(num_ranks_))) {
      of_shard = std::max(of_shard, PlanOf(bundle, each).pieces());
    }
    bundle.end += of_shard * most_ranks_;
  } else {
    for (const ResolvedRequest* request : requests_) {
      bundle.plan.Add(is_in(request) ? request->call.count() : 0,
                      DTypeBytes(TypeOnWire(request->call.operation)));
    }
    // So many that the links of all ranks are busy from the beginning.
    const std::uint64_t even =
        RoundUp(bundle.plan.bytes() / (most_ranks_ * most_slots_), PiecePlan::kGranule);
    bundle.plan.Cut(std::clamp(even, least_piece_bytes_, most_piece_bytes_));
    bundle.end += bundle.plan.pieces();
    past_cache_ |= bundle.plan.bytes() >= kPastCacheBytes;
  }
  pieces_ = bundle.end;
  bundles_.push_back(std::move(bundle));
}

// The plan of what a rank gets of the reduce-scatters.
PiecePlan HierarchicalTransfer::PlanOf(const Bundle& bundle, ParticipantId receiver) const {
  PiecePlan plan;
  for (const ResolvedRequest* request : requests_) {
    const Shard shard = IsIn(bundle, *request)
                            ? request->collective->PartFor(request->call, request->self, receiver)
                            : Shard{0, 0};
    plan.Add(shard.count, DTypeBytes(TypeOnWire(request->call.operation)), shard.begin);
  }
  plan.Cut(shard_bytes_);
  return plan;
}

const HierarchicalTransfer::Bundle& HierarchicalTransfer::BundleOf(std::uint64_t piece) const {
  std::size_t bundle = 0;
  while (piece >= bundles_[bundle].end) ++bundle;
  return bundles_[bundle];
}

std::uint64_t HierarchicalTransfer::TurnOf(std::uint64_t piece) const {
  const Bundle& bundle = BundleOf(piece);
  return bundle.scatters ? (piece - bundle.begin) % most_ranks_ : piece;
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
  LayOut(piece, &slot);
  BeginRound(&slot);
}

// Finds the parts of a piece, and their places in memory.
void HierarchicalTransfer::LayOut(std::uint64_t piece, Slot* slot) const {
  const Bundle& bundle = BundleOf(piece);
  const std::uint64_t number = piece - bundle.begin;
  const std::uint64_t bytes = bundle.scatters ? 0 : bundle.plan.BytesOf(number);
  const std::size_t hosts = hosts_.size();
  const bool small = bytes <= kWholeBytes && hosts < kLeastGroupedHosts;
  slot->scatters = bundle.scatters;
  slot->exchange = bundle.grouped                              ? &grouped_
                   : !bundle.scatters && (small || hosts == 2) ? &whole_
                                                               : &direct_;
  const std::vector<std::size_t>& parts = slot->exchange->parts;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    PiecePlan::Part range = {0, 0};
    Part part = {};
    if (!slot->scatters) {
      range = PiecePlan::PartOf(bytes, parts.size(), i);
      part.segments = bundle.plan.SegmentsOf(number, range);
    } else if (slot->turn < hosts_[parts[i]].size()) {
      const std::vector<RankId>& ranks = requests_.front()->ranks;
      const auto receiver = std::find(ranks.begin(), ranks.end(), RankId(hosts_[parts[i]][slot->turn]));
      const PiecePlan plan = PlanOf(bundle, ParticipantId(static_cast<int>(receiver - ranks.begin())));
      const std::uint64_t of_shard = number / most_ranks_;
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
  const std::size_t reducing = slot->exchange->reduction.size();
  const bool reduces = slot->round < reducing;
  const HostExchange::Round& round =
      reduces ? slot->exchange->reduction[slot->round] : slot->exchange->distribution[slot->round - reducing];
  const int stream = reduces ? exchange_stream_ : distribute_stream_;
  std::byte* next = slot->memory.get() + memory_bytes_ / 2;
  slot->partials.clear();
  for (const HostExchange::Move& move : round) {
    const std::uint64_t bytes = BytesOf(*slot, move.receive);
    if (bytes == 0) continue;
    std::byte* const to = reduces ? next : slot->memory.get() + slot->parts[move.receive.first].offset;
    slot->receives.push_back(
        wire_->BeginReceive(CarrierOn(*slot, move.peer), stream, to, bytes, slot->memory));
    slot->partials.push_back({move.peer, move.receive, to});
    next += RoundUp(bytes, PiecePlan::kGranule);
  }
  std::sort(slot->partials.begin(), slot->partials.end(),
            [](const Partial& a, const Partial& b) { return a.host < b.host; });
  if (slot->round == 0) ReduceHere(slot);
  for (const HostExchange::Move& move : round) {
    const std::uint64_t bytes = BytesOf(*slot, move.send);
    if (bytes == 0) continue;
    const Part& first = slot->parts[move.send.first];
    const bool lent = first.here != slot->memory.get() + first.offset;
    slot->sends.push_back(wire_->BeginSend(CarrierOn(*slot, move.peer), stream, first.here, bytes,
                                           lent ? inputs_ : slot->memory));
  }
}

bool HierarchicalTransfer::AllEnded(std::vector<Wire::Movement>* movements) {
  while (!movements->empty() && wire_->Ended(movements->back())) movements->pop_back();
  return movements->empty();
}

// True when it was the last.
bool HierarchicalTransfer::EndRound(Slot* slot) {
  const std::size_t reducing = slot->exchange->reduction.size();
  const std::size_t later = slot->scatters ? 0 : slot->exchange->distribution.size();
  if (slot->round < reducing) {
    const bool last = slot->round + 1 == reducing;
    ReduceHosts(slot, last, /*writes=*/last && later == 0);
  }
  if (++slot->round < reducing + later) {
    BeginRound(slot);
    return false;
  }
  if (later > 0) WriteOut(*slot);
  return true;
}

RankId HierarchicalTransfer::CarrierOn(const Slot& slot, std::size_t host) const {
  return RankId(hosts_[host][slot.turn % hosts_[host].size()]);
}

// As they lie in memory.
std::uint64_t HierarchicalTransfer::BytesOf(const Slot& slot, HostExchange::Parts parts) {
  if (parts.count == 0) return 0;
  const Part& last = slot.parts[parts.first + parts.count - 1];
  return last.offset + last.bytes - slot.parts[parts.first].offset;
}

// Makes the partial result of this host. A part that lies in one input as it is to be sent stays there.
void HierarchicalTransfer::ReduceHere(Slot* slot) {
  const void* from[kMaxLocalRanks];
  const bool lends = slot->exchange->lends && hosts_[host_].size() == 1;
  for (Part& part : slot->parts) {
    for (const PiecePlan::Segment& segment : part.segments) {
      const Operation& operation = requests_[segment.item]->call.operation;
      const int inputs = InputsOf(segment, from);
      if (lends && part.segments.size() == 1 && inputs == 1 && IsPartialResult(operation)) {
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
  const bool broadcasts = !IsReduction(request.call.operation.kind);
  int count = 0;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i] == nullptr || (broadcasts && i != request.call.root.index())) continue;
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

// Adds what has come, the `last` time as the result. `writes`: straight into the outputs of this host.
void HierarchicalTransfer::ReduceHosts(Slot* slot, bool last, bool writes) {
  const auto ranks = static_cast<int>(num_ranks_);
  std::vector<const std::byte*> from;  // of a part
  std::vector<const void*> partials;   // of a segment of it
  void* to[kMaxLocalRanks];
  for (std::size_t i = 0; i < slot->parts.size(); ++i) {
    Part& part = slot->parts[i];
    if (part.bytes == 0) continue;
    from.clear();
    std::size_t before = 0;  // of them are of earlier hosts
    for (const Partial& partial : slot->partials) {
      if (i - partial.parts.first >= partial.parts.count) continue;
      if (partial.host < host_) ++before;
      from.push_back(partial.come + (part.offset - slot->parts[partial.parts.first].offset));
    }
    if (from.empty()) continue;
    from.insert(from.begin() + static_cast<std::ptrdiff_t>(before), part.here);
    part.here = slot->memory.get() + part.offset;
    for (const PiecePlan::Segment& segment : part.segments) {
      const Operation& operation = requests_[segment.item]->call.operation;
      partials.clear();
      for (const std::byte* const each : from) partials.push_back(each + segment.offset);
      const auto count = static_cast<int>(partials.size());
      std::byte* const reduced = slot->memory.get() + part.offset + segment.offset;
      if (writes) {
        const int outputs = OutputsOf(segment, to);
        WriteReduced(operation, ranks, partials.data(), count, reduced, to, outputs, segment.count,
                     past_cache_);
      } else if (last) {
        ReducePartials(operation, ranks, partials.data(), count, reduced, segment.count);
      } else {
        AddPartials(operation, partials.data(), count, reduced, segment.count);
      }
    }
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
  bundles_.clear();
  slots_.clear();
  pieces_ = next_ = 0;
}

}  // namespace tf_smddp
