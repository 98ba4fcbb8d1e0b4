// libFuzzer: ranks that arrive at requests, acknowledge them and leave, and words of the table that a peer
// has overwritten, in any order. Nothing outside of the table is touched, every loop over it ends, and every
// place that it returns is one of its own. While no word was overwritten, one rank alone makes a request
// ready.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "kernels/control/readiness_table.h"
#include "tests/fuzz/input.h"

namespace tf_smddp {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kSlots = 4;
constexpr int kMostSteps = 200;

// A table for one host, or for one of several.
TableShape ShapeOf(bool wired) {
  if (!wired) return {kSlots, kRanks};
  return {kSlots, kRanks + 1, 4, MemberId(kRanks)};
}

class Run {
 public:
  explicit Run(Input* input)
      : input_(input),
        wired_(input->Below(2) == 1),
        shape_(ShapeOf(wired_)),
        bytes_(ReadinessTable::Bytes(shape_)),
        memory_(static_cast<std::byte*>(::operator new(bytes_, std::align_val_t{64}))),
        active_(MemberMask::FirstN(shape_.num_ranks).bits()),
        table_(Zeroed(memory_, bytes_), shape_, &active_, &abort_) {
    // So that nobody waits for a writer: there is no other thread.
    abort_.Raise("a writer has died");
  }
  ~Run() { ::operator delete(memory_, std::align_val_t{64}); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void Go() {
    for (int step = 0; step < kMostSteps && !input_->empty(); ++step) {
      Step(input_->Below(8));
      Look();
    }
  }

 private:
  static std::byte* Zeroed(std::byte* memory, std::size_t bytes) {
    std::memset(memory, 0, bytes);
    return memory;
  }

  void Step(unsigned kind) {
    if (kind == 0) {  // a peer
      const std::size_t words = bytes_ / sizeof(std::uint64_t);
      const std::size_t first = input_->Take<std::uint16_t>() % words;
      const std::size_t number = std::min<std::size_t>(1 + input_->Below(32), words - first);
      input_->Fill(memory_ + first * sizeof(std::uint64_t), number * sizeof(std::uint64_t));
      damaged_ = true;
    } else if (kind == 1) {
      const Place place = {input_->Below(kSlots), input_->Below(shape_.generations)};
      table_.Acknowledge(place, Rank());
      acknowledged_ = true;
    } else if (kind == 2) {
      active_ &= ~MemberMask::Of(MemberId(Rank())).bits();
      for (const Place place : table_.MakeReadyAfterLeaving()) Require(table_.Has(place));
    } else if (kind == 3) {
      const Place place = {input_->Below(kSlots), input_->Below(shape_.generations)};
      const int rank = Rank();
      table_.MoveToArena(place, rank, 1, 2);
      Require(table_.CellOf(place, rank).input_offset == 1);
    } else {
      Arrive();
    }
  }

  int Rank() { return static_cast<int>(input_->Below(static_cast<unsigned>(shape_.num_ranks))); }

  void Arrive() {
    const std::string key(1 + input_->Below(2) * 120, static_cast<char>('a' + input_->Below(6)));
    std::uint32_t slot = 0;
    if (!table_.FindSlot(key, &slot).ok()) return;
    Require(slot < kSlots);
    const std::uint64_t ticket = input_->Below(16) == 0 ? input_->Take<std::uint64_t>() : input_->Below(6);
    const int rank = Rank();
    const Manifest manifest =
        MakeManifest({CollectiveKind::kAllreduce}, 0, 1, {input_->Below(8) == 0 ? 5 : 4}, key);
    const Cell cell = {1, 2, 3, 4};
    Manifest other{};
    int other_rank = -1;
    const Arrival arrival = table_.Arrive(slot, ticket, rank, manifest, cell, &other, &other_rank);
    if (arrival == Arrival::kMismatch) Require(!DescribeManifest(other).empty());
    if (damaged_) return;
    Require(arrival != Arrival::kAborted);
    if (arrival == Arrival::kMismatch) Require(other_rank >= 0 && other_rank < shape_.num_ranks);
    if (arrival == Arrival::kHostLast) Require(wired_);
    if (arrival == Arrival::kWaiting || arrival == Arrival::kLast || arrival == Arrival::kHostLast) {
      Require(table_.CellOf(table_.PlaceOf(slot, ticket), rank) == cell);
      Require((table_.ArrivedMask(slot, ticket) >> rank & 1) == 1);
    }
    if (arrival != Arrival::kLast) return;
    Require(table_.Participants(slot, ticket) != 0);
    if (!acknowledged_) Require(++ready_[{slot, ticket}] == 1);
  }

  void Look() {
    for (const ReadinessTable::HostReady& ready : table_.AllHostReady()) {
      Require(table_.Has(ready.place) && !ready.arrived.empty());
    }
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      Require(table_.KeyText(slot).size() < ReadinessTable::kKeyBytes);
      table_.KeyHash(slot);
      for (std::uint32_t generation = 0; generation < shape_.generations; ++generation) {
        const Place place = {slot, generation};
        Require(!DescribeManifest(table_.ManifestAt(place)).empty());
        const MemberMask held_up_by(table_.HeldUpBy(place));
        Require(damaged_ || MemberMask::FirstN(shape_.num_ranks).ContainsAll(held_up_by));
        table_.BatchAt(place);
        for (int rank = 0; rank < shape_.num_ranks; ++rank) table_.CellOf(place, rank);
      }
    }
  }

  Input* const input_;
  const bool wired_;
  const TableShape shape_;
  const std::size_t bytes_;
  std::byte* const memory_;
  std::atomic<std::uint64_t> active_;
  AbortRecord abort_ = {};
  ReadinessTable table_;
  bool damaged_ = false, acknowledged_ = false;
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> ready_;  // how often, by slot and ticket
};

}  // namespace
}  // namespace tf_smddp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tf_smddp::Input input(data, size);
  tf_smddp::Run(&input).Go();
  return 0;
}
