// ReadinessTable: who has arrived at which collective.
//
// Place in the stack: in the control segment, above manifest.h and abort_record.h. It decides readiness and
// equality; it does not run anything and it never waits for a rank.
//
// Structure. An insert-only dictionary from a key's text to a slot (open addressing, 64-bit hash, text
// verified). Each slot has two generations, for even and for odd tickets, so that a rank may enter its next
// use of a key while slower ranks still leave the last one. A use of a generation:
//
//   claim        free -> writing(ticket) by the first rank to arrive -> open(ticket), its manifest written
//   arrive       each rank writes its cell (where its data lie), then sets its bit in `arrived`
//   ready        when all active ranks have arrived; exactly one rank makes it so, by a compare-and-swap, and
//                must launch the request. Who has arrived then are its *participants*, for good
//   acknowledge  each participant, once it is done with the cells, sets its bit in `acknowledged`; the last
//                one makes the generation free again ("retired")
//
// A list of the used slots lies beside it, so that nobody has to touch the memory of all.
//
// A rank that finds its generation used by another ticket gets kBusy and tries again after a retirement
// (Note [Deferral cannot deadlock] in docs/architecture.md).
//
// Note [Leaving a communicator]: a rank that leaves clears its bit in `active`, then looks for requests that
// all others have arrived at. A rank that arrives sets its bit in `arrived`, then looks at `active`. Both
// orders are sequentially consistent, so one of the two sees that the request is ready, and the
// compare-and-swap decides between them. It is on the ticket, not on a flag: the one who loses finds another
// value there, even if the generation has been retired and used again meanwhile.
#ifndef TF_SMDDP_KERNELS_CONTROL_READINESS_TABLE_H_
#define TF_SMDDP_KERNELS_CONTROL_READINESS_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/manifest.h"

namespace tf_smddp {

// What one rank says about its part of a request. Offsets are into its arena, or kNotInArena.
struct Cell {
  std::uint64_t input_offset;
  std::uint64_t output_offset;
  std::uint64_t rows;           // of its input, where ranks may differ in them
  std::uint64_t splits_offset;  // alltoall: one 64-bit number of rows for each rank

  bool operator==(const Cell& other) const {
    return input_offset == other.input_offset && output_offset == other.output_offset && rows == other.rows &&
           splits_offset == other.splits_offset;
  }
};

// One generation of one slot; fits an item of the launch log.
struct Place {
  std::uint32_t slot;
  std::uint32_t parity;

  std::uint64_t index() const { return std::uint64_t{slot} * 2 + parity; }
  static Place FromIndex(std::uint64_t index) {
    return {static_cast<std::uint32_t>(index / 2), static_cast<std::uint32_t>(index % 2)};
  }
};

enum class Arrival {
  kWaiting,   // entered; other ranks are still to come
  kLast,      // entered, and that made it ready: the caller launches it
  kBusy,      // not entered: the generation serves another ticket
  kMismatch,  // not entered: another rank's manifest differs, and is handed out
  kTwice,     // not entered: this rank is already in it
  kAborted,   // not entered: the job was aborted meanwhile
};

class ReadinessTable {
 public:
  static constexpr std::size_t kKeyBytes = 104;  // the longest key text, with its end

  // Bytes that a table of `slots` slots (a power of two) for `num_ranks` ranks takes.
  static std::size_t Bytes(std::size_t slots, int num_ranks);

  // A view of zeroed or already used shared memory at `memory`, aligned to 64. `active` has the bits of the
  // ranks that requests wait for.
  ReadinessTable(std::byte* memory, std::size_t slots, int num_ranks,
                 const std::atomic<std::uint64_t>* active, const AbortRecord* abort);

  // Finds or inserts `key`. Texts longer than kKeyBytes are cut and told apart by their hash. Errors:
  // Internal when the table is full, naming the capacity and the setting. Any thread.
  Status FindSlot(const std::string& key, std::uint32_t* slot);

  // Enters rank `rank` for `ticket` at place(slot, ticket). On kMismatch, *others holds what the other rank
  // has there and *other_rank who that was. Any thread.
  Arrival Arrive(std::uint32_t slot, std::uint64_t ticket, int rank, const Manifest& manifest,
                 const Cell& cell, Manifest* others, int* other_rank);

  // After a rank's bit in `active` was cleared: makes every request ready that waited for that rank alone,
  // and returns their places; the caller launches them. Any thread.
  std::vector<Place> MakeReadyAfterLeaving();

  static Place PlaceOf(std::uint32_t slot, std::uint64_t ticket) {
    return {slot, static_cast<std::uint32_t>(ticket % 2)};
  }

  // Bits of the ranks that have arrived at `slot` for `ticket`; 0 when its generation serves another ticket.
  // Exact for a rank that has arrived itself and not acknowledged yet. Any thread.
  std::uint64_t ArrivedMask(std::uint32_t slot, std::uint64_t ticket) const;

  // Bits of the ranks that `slot`'s request for `ticket` is about; 0 while it is not ready. Exact as above.
  std::uint64_t Participants(std::uint32_t slot, std::uint64_t ticket) const;

  // Bits of the ranks that keep the generation at `place` in use: those that have not arrived at the request
  // that it serves, or else not acknowledged it; 0 when it is free. For messages: it may change meanwhile.
  // Any thread.
  std::uint64_t HeldUpBy(Place place) const;

  // Rank `rank`'s cell; valid between readiness and the caller's own Acknowledge.
  Cell CellOf(Place place, int rank) const;

  // Rank `rank`, a participant, is done with the cells of `place`. True when that retired the generation.
  // Comm thread.
  bool Acknowledge(Place place, int rank);

  // Makes all generations free; keys keep their slots. Touches the memory of used slots alone. Nobody else
  // may be in the table (Note [Restart] in failure_record.h).
  void Clear();

  std::size_t slots() const { return slots_; }

 private:
  struct Generation;
  struct Slot;

  static bool TryReady(Generation* generation, std::uint64_t seen_ready, std::uint64_t open);
  template <typename Body>
  void ForEachGeneration(Body body) const;
  std::atomic<std::uint32_t>& UsedAt(std::size_t index) const;
  Slot* SlotAt(std::uint32_t slot) const;
  Generation* GenerationAt(Place place) const;
  static std::size_t GenerationBytes(int num_ranks);
  static std::size_t SlotBytes(int num_ranks);

  struct Fixed {
    std::atomic<std::uint32_t> num_used;  // slots that have a key
  };
  Fixed* const fixed_;
  std::byte* const memory_;  // of the slots
  const std::size_t slots_;
  const int num_ranks_;
  const std::atomic<std::uint64_t>* const active_;
  const AbortRecord* const abort_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_READINESS_TABLE_H_
