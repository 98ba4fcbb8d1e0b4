#include "kernels/control/readiness_table.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace tf_smddp {
namespace {

constexpr std::size_t kLine = 64;

std::size_t RoundToLine(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// FNV-1a with a final mix. Never returns 0, which marks an empty slot. std::hash would not do, because the
// result must be the same in all processes.
std::uint64_t HashKey(const std::string& key) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15u;
  hash ^= hash >> 29;
  return hash == 0 ? 1 : hash;
}

// Returns the value of Generation::claim for a ticket. It is never 0, which means free. Bit 0 is set while
// the manifest is being written.
std::uint64_t OpenClaim(std::uint64_t ticket) { return (ticket + 1) << 1; }
std::uint64_t TicketOf(std::uint64_t claim) { return (claim >> 1) - 1; }
constexpr std::uint64_t kWritingBit = 1;

}  // namespace

struct ReadinessTable::Generation {
  std::atomic<std::uint64_t> claim;
  std::atomic<std::uint64_t> arrived;       // bit r: rank r's cell is written
  std::atomic<std::uint64_t> ready;         // the claim of the last use that became ready
  std::atomic<std::uint64_t> participants;  // of that use, as a mask
  std::atomic<std::uint64_t> acknowledged;  // bit r: rank r no longer needs the cells
  std::uint64_t first_rank;                 // the rank that wrote the manifest
  Manifest manifest;
  BatchState batch;

  Cell* cells() {
    return reinterpret_cast<Cell*>(reinterpret_cast<std::byte*>(this) + RoundToLine(sizeof *this));
  }
};

struct ReadinessTable::Slot {
  std::atomic<std::uint64_t> hash;  // 0: empty
  std::atomic<std::uint32_t> text_written;
  char text[kKeyBytes];
};

std::size_t ReadinessTable::GenerationBytes(int num_ranks) {
  return RoundToLine(sizeof(Generation)) + RoundToLine(sizeof(Cell) * static_cast<std::size_t>(num_ranks));
}

std::size_t ReadinessTable::SlotBytes(const TableShape& shape) {
  return RoundToLine(sizeof(Slot)) + shape.generations * GenerationBytes(shape.num_ranks);
}

std::size_t ReadinessTable::Bytes(const TableShape& shape) {
  return RoundToLine(sizeof(Fixed)) + RoundToLine(shape.slots * sizeof(std::uint32_t)) +
         shape.slots * SlotBytes(shape);
}

// Note [Zeros are objects] in job_segment.h.
ReadinessTable::ReadinessTable(std::byte* memory, const TableShape& shape,
                               const std::atomic<std::uint64_t>* active, const AbortRecord* abort)
    : fixed_(reinterpret_cast<Fixed*>(memory)),
      memory_(memory + RoundToLine(sizeof(Fixed)) + RoundToLine(shape.slots * sizeof(std::uint32_t))),
      shape_(shape),
      outside_(MemberMask::Of(shape.outside)),
      active_(active),
      abort_(abort) {}

// An entry of the list of used slots: the slot's number plus 1, or 0 while it is being written.
std::atomic<std::uint32_t>& ReadinessTable::UsedAt(std::size_t index) const {
  auto* used = reinterpret_cast<std::atomic<std::uint32_t>*>(reinterpret_cast<std::byte*>(fixed_) +
                                                             RoundToLine(sizeof(Fixed)));
  return used[index];
}

template <typename Body>
void ReadinessTable::ForEachGeneration(Body body) const {
  const std::size_t used =
      std::min<std::size_t>(fixed_->num_used.load(std::memory_order_seq_cst), shape_.slots);
  for (std::size_t i = 0; i < used; ++i) {
    const std::uint32_t slot = UsedAt(i).load(std::memory_order_acquire);
    if (slot == 0 || slot > shape_.slots) continue;
    for (std::uint32_t generation = 0; generation < shape_.generations; ++generation) {
      body(Place{slot - 1, generation});
    }
  }
}

ReadinessTable::Slot* ReadinessTable::SlotAt(std::uint32_t slot) const {
  return reinterpret_cast<Slot*>(memory_ + slot * SlotBytes(shape_));
}

ReadinessTable::Generation* ReadinessTable::GenerationAt(Place place) const {
  return reinterpret_cast<Generation*>(memory_ + place.slot * SlotBytes(shape_) + RoundToLine(sizeof(Slot)) +
                                       place.generation * GenerationBytes(shape_.num_ranks));
}

Status ReadinessTable::FindSlot(const std::string& key, std::uint32_t* slot) {
  const std::uint64_t hash = HashKey(key);
  const std::size_t text_bytes = std::min(key.size(), kKeyBytes - 1);
  for (std::size_t probe = 0; probe < shape_.slots; ++probe) {
    const auto candidate = static_cast<std::uint32_t>((hash + probe) & (shape_.slots - 1));
    Slot* entry = SlotAt(candidate);
    std::uint64_t found = entry->hash.load(std::memory_order_acquire);
    if (found == 0) {
      if (entry->hash.compare_exchange_strong(found, hash, std::memory_order_acq_rel)) {
        std::memcpy(entry->text, key.data(), text_bytes);
        entry->text[text_bytes] = '\0';
        entry->text_written.store(1, std::memory_order_release);
        // The slot is listed before any rank can arrive there, so ForEachGeneration finds every arrival.
        const std::uint32_t index = fixed_->num_used.fetch_add(1, std::memory_order_seq_cst);
        if (index >= shape_.slots)
          return Internal("shared memory is corrupt: the readiness table counts more keys than it has slots");
        UsedAt(index).store(candidate + 1, std::memory_order_seq_cst);
        *slot = candidate;
        return {};
      }
    }
    if (found != hash) continue;
    while (entry->text_written.load(std::memory_order_acquire) == 0) {
      if (abort_->raised()) return Internal(abort_->Text());
      ::sched_yield();  // the writer needs a few instructions; if it has died, the job is aborted soon
    }
    if (std::strncmp(entry->text, key.c_str(), text_bytes) == 0 && entry->text[text_bytes] == '\0') {
      *slot = candidate;
      return {};
    }
  }
  return Internal(
      "no room for the tensor '" + key + "': this job has used " + std::to_string(shape_.slots) +
      " distinct keys, all that its table holds; raise SMDDP_TABLE_SLOTS (a power of two), or reuse "
      "names");
}

Arrival ReadinessTable::Arrive(std::uint32_t slot, std::uint64_t ticket, int rank, const Manifest& manifest,
                               const Cell& cell, Manifest* other_manifest, int* other_rank) {
  Generation* generation = GenerationAt(PlaceOf(slot, ticket));
  const std::uint64_t open = OpenClaim(ticket);
  std::uint64_t claim = generation->claim.load(std::memory_order_seq_cst);
  if (claim == 0 &&
      generation->claim.compare_exchange_strong(claim, open | kWritingBit, std::memory_order_seq_cst)) {
    generation->manifest = manifest;
    generation->first_rank = static_cast<std::uint64_t>(rank);
    generation->batch.Reset();
    generation->claim.store(open, std::memory_order_release);
  } else {
    while (claim == (open | kWritingBit)) {
      if (abort_->raised()) return Arrival::kAborted;
      ::sched_yield();  // as in FindSlot
      claim = generation->claim.load(std::memory_order_acquire);
    }
    if (claim != open) return Arrival::kBusy;
    if (!SameManifest(generation->manifest, manifest)) {
      *other_manifest = generation->manifest;
      *other_rank = static_cast<int>(generation->first_rank);
      return Arrival::kMismatch;
    }
  }
  const MemberId self(rank);
  if (MemberMask(generation->arrived.load(std::memory_order_acquire)).Contains(self)) return Arrival::kTwice;
  generation->cells()[rank] = cell;
  // Sequentially consistent, because the engine reads afterwards which ranks have left (Note [Leaving] in
  // kernels/engine).
  const std::uint64_t before =
      generation->arrived.fetch_or(MemberMask::Of(self).bits(), std::memory_order_seq_cst);
  const MemberMask arrived = MemberMask(before).With(self);
  const MemberMask active(active_->load(std::memory_order_seq_cst));
  // This use cannot be retired before this rank acknowledges it. So if this rank is the last to arrive, only
  // a leaving rank can make the request ready at the same time.
  const std::uint64_t ready = generation->ready.load(std::memory_order_seq_cst);
  const bool last = arrived.ContainsAll(active) && ready != open && TryReady(generation, ready, open);
  if (last) return Arrival::kLast;
  // If several ranks arrive at the same time, exactly one finds that it completes the host. When a rank
  // leaves at this moment, the host's relay finds it.
  const MemberMask here = active - outside_;
  const bool host_last = !outside_.empty() && !here.empty() && arrived.ContainsAll(here) &&
                         !MemberMask(before).ContainsAll(here);
  return host_last ? Arrival::kHostLast : Arrival::kWaiting;
}

bool ReadinessTable::IsHostReady(Place place, HostReady* ready) const {
  const Generation* generation = GenerationAt(place);
  const std::uint64_t claim = generation->claim.load(std::memory_order_seq_cst);
  if (claim == 0 || (claim & kWritingBit) != 0) return false;
  if (generation->ready.load(std::memory_order_seq_cst) == claim) return false;
  const MemberMask arrived(generation->arrived.load(std::memory_order_seq_cst));
  const MemberMask active(active_->load(std::memory_order_seq_cst));
  if (arrived.empty() || !arrived.ContainsAll(active - outside_)) return false;
  *ready = {place, TicketOf(claim), arrived};
  return true;
}

std::vector<ReadinessTable::HostReady> ReadinessTable::AllHostReady() const {
  std::vector<HostReady> all;
  ForEachGeneration([&](Place place) {
    HostReady ready;
    if (IsHostReady(place, &ready)) all.push_back(ready);
  });
  return all;
}

std::uint64_t ReadinessTable::KeyHash(std::uint32_t slot) const {
  return SlotAt(slot)->hash.load(std::memory_order_acquire);
}

std::string ReadinessTable::KeyText(std::uint32_t slot) const {
  const char* text = SlotAt(slot)->text;
  return std::string(text, ::strnlen(text, kKeyBytes - 1));
}

const Manifest& ReadinessTable::ManifestAt(Place place) const { return GenerationAt(place)->manifest; }

bool ReadinessTable::TryReady(Generation* generation, std::uint64_t seen_ready, std::uint64_t open) {
  if (!generation->ready.compare_exchange_strong(seen_ready, open, std::memory_order_seq_cst)) return false;
  // A rank that is no longer active and has not arrived will never arrive, so this mask is final.
  generation->participants.store(generation->arrived.load(std::memory_order_seq_cst),
                                 std::memory_order_seq_cst);
  return true;
}

std::vector<Place> ReadinessTable::MakeReadyAfterLeaving() {
  std::vector<Place> places;
  ForEachGeneration([&](Place place) {
    Generation* generation = GenerationAt(place);
    const std::uint64_t ready = generation->ready.load(std::memory_order_seq_cst);
    const std::uint64_t claim = generation->claim.load(std::memory_order_seq_cst);
    if (claim == 0 || (claim & kWritingBit) != 0 || claim == ready) return;
    const MemberMask arrived(generation->arrived.load(std::memory_order_seq_cst));
    const MemberMask active(active_->load(std::memory_order_seq_cst));
    if (arrived.empty() || !arrived.ContainsAll(active)) return;
    if (TryReady(generation, ready, claim)) places.push_back(place);
  });
  return places;
}

std::uint64_t ReadinessTable::ArrivedMask(std::uint32_t slot, std::uint64_t ticket) const {
  const Generation* generation = GenerationAt(PlaceOf(slot, ticket));
  if (generation->claim.load(std::memory_order_seq_cst) != OpenClaim(ticket)) return 0;
  return generation->arrived.load(std::memory_order_seq_cst);
}

std::uint64_t ReadinessTable::Participants(std::uint32_t slot, std::uint64_t ticket) const {
  const Generation* generation = GenerationAt(PlaceOf(slot, ticket));
  if (generation->ready.load(std::memory_order_seq_cst) != OpenClaim(ticket)) return 0;
  return generation->participants.load(std::memory_order_seq_cst);
}

std::uint64_t ReadinessTable::HeldUpBy(Place place) const {
  const Generation* generation = GenerationAt(place);
  const std::uint64_t claim = generation->claim.load(std::memory_order_seq_cst);
  if (claim == 0) return 0;
  if (generation->ready.load(std::memory_order_seq_cst) != claim) {
    return active_->load(std::memory_order_seq_cst) & ~generation->arrived.load(std::memory_order_seq_cst);
  }
  return generation->participants.load(std::memory_order_seq_cst) &
         ~generation->acknowledged.load(std::memory_order_seq_cst);
}

// The input's offset is written last, and read first.
Cell ReadinessTable::CellOf(Place place, int rank) const {
  const Cell& cell = GenerationAt(place)->cells()[rank];
  Cell copy;
  copy.input_offset = __atomic_load_n(&cell.input_offset, __ATOMIC_ACQUIRE);
  copy.output_offset = __atomic_load_n(&cell.output_offset, __ATOMIC_RELAXED);
  copy.rows = cell.rows;
  copy.splits_offset = cell.splits_offset;
  return copy;
}

void ReadinessTable::MoveToArena(Place place, int rank, std::uint64_t input_offset,
                                 std::uint64_t output_offset) {
  Cell& cell = GenerationAt(place)->cells()[rank];
  __atomic_store_n(&cell.output_offset, output_offset, __ATOMIC_RELAXED);
  __atomic_store_n(&cell.input_offset, input_offset, __ATOMIC_RELEASE);
}

BatchState& ReadinessTable::BatchAt(Place place) const { return GenerationAt(place)->batch; }

bool ReadinessTable::Acknowledge(Place place, int rank) {
  Generation* generation = GenerationAt(place);
  const MemberId self(rank);
  const MemberMask participants(generation->participants.load(std::memory_order_relaxed));
  const MemberMask before(
      generation->acknowledged.fetch_or(MemberMask::Of(self).bits(), std::memory_order_acq_rel));
  if (before.With(self) != participants) return false;
  generation->participants.store(0, std::memory_order_relaxed);
  // A relay that sees no arrival frees what the participants have read (ArrivedMask).
  generation->arrived.store(0, std::memory_order_release);
  generation->acknowledged.store(0, std::memory_order_relaxed);
  generation->claim.store(0, std::memory_order_seq_cst);
  return true;
}

void ReadinessTable::Clear() {
  ForEachGeneration([this](Place place) {
    Generation* generation = GenerationAt(place);
    generation->claim.store(0, std::memory_order_relaxed);
    generation->arrived.store(0, std::memory_order_relaxed);
    generation->ready.store(0, std::memory_order_relaxed);
    generation->participants.store(0, std::memory_order_relaxed);
    generation->acknowledged.store(0, std::memory_order_relaxed);
  });
}

}  // namespace tf_smddp
