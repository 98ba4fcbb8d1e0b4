// ReadinessTable: records which ranks have arrived at which collective.
//
// Place in the stack: in a communicator's segment, above manifest.h and abort_record.h. The table decides
// when a request is ready, and compares the ranks' manifests. It runs nothing, and it never waits for another
// rank to arrive. "Rank" means a member's number in the communicator here.
//
// Structure. An insert-only dictionary maps a key's text to a slot (open addressing by a 64-bit hash, with
// the text compared). A list of the used slots lies beside it, so that a walk touches only their memory. Each
// slot has a few *generations*, which tickets use in turn, so that a rank may enter the next use of a key
// while slower ranks still finish the last one. On one host two are enough. Where there are several hosts, a
// host may claim a generation for one ticket while another host claims its own for another, and each would
// wait for the other. So there are more (Note [Places between hosts] in kernels/engine/core/pending.h). A
// generation is used in four steps:
//
//   claim        The first rank to arrive takes the generation from free to writing(ticket), writes the
//                manifest, and sets open(ticket).
//   arrive       Each rank writes its cell (the location of its data), then sets its bit in `arrived`.
//   ready        When all active ranks have arrived, exactly one rank makes the request ready by a
//                compare-and-swap, and must launch it. The ranks that have arrived by then are its
//                *participants*; they do not change any more.
//   acknowledge  Each participant sets its bit in `acknowledged` when it no longer needs the cells. The last
//                one *retires* the generation, that is, makes it free again.
//
// A rank that finds its generation in use by another ticket gets kBusy, and tries again after a retirement
// (Note [Deferral cannot deadlock] in docs/architecture.md).
//
// Note [Leaving a communicator]: a leaving rank clears its bit in `active`, then looks for requests at which
// all remaining ranks have arrived. An arriving rank sets its bit in `arrived`, then reads `active`. Both
// orders are sequentially consistent, so at least one of the two sees that the request is ready, and the
// compare-and-swap gives it to one of them. The swap compares tickets, not a flag: the one that comes second
// finds another value, even if the generation has been retired and used again meanwhile. When all ranks have
// left, the incarnation ends (failure_record.h), and all are active again in the next one.
#ifndef TF_SMDDP_KERNELS_CONTROL_READINESS_TABLE_H_
#define TF_SMDDP_KERNELS_CONTROL_READINESS_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/collectives/batch_state.h"
#include "kernels/common/rank_mask.h"
#include "kernels/common/status.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/manifest.h"

namespace tf_smddp {

// The offsets of tensors that stay in the memory of a GPU.
inline constexpr std::uint64_t kOnDevice = ~std::uint64_t{1};

// The output's offset at TableShape::outside, where there is no output, if all other hosts had arrived before
// this one.
inline constexpr std::uint64_t kThisHostLast = ~std::uint64_t{2};

// One rank's part of a request. Offsets are relative to the rank's arena; kNotInArena stands for private
// memory.
struct Cell {
  std::uint64_t input_offset;
  std::uint64_t output_offset;
  std::uint64_t rows;           // rows of the input, which may differ between ranks in some collectives
  std::uint64_t splits_offset;  // alltoall: an array with one 64-bit number of rows for each rank

  bool operator==(const Cell& other) const {
    return input_offset == other.input_offset && output_offset == other.output_offset && rows == other.rows &&
           splits_offset == other.splits_offset;
  }
};

// Names one generation of one slot. index() fits into an item of the launch log.
struct Place {
  static constexpr std::uint32_t kMostGenerations = 16;
  // The places of one tensor of groups between hosts: those of the first tensors are 4,096, those of the n-th
  // an n-th as many, but at least kMostGenerations (Note [Places between hosts] in
  // kernels/engine/core/pending.h).
  static constexpr std::uint64_t NumOfGroups(std::uint32_t param_index) {
    const std::uint64_t slots = 4096 / kMostGenerations / (std::uint64_t{param_index} + 1);
    return kMostGenerations * (slots > 1 ? slots : 1);
  }

  std::uint32_t slot;
  std::uint32_t generation;

  std::uint64_t index() const { return std::uint64_t{slot} * kMostGenerations + generation; }
  static Place FromIndex(std::uint64_t index) {
    return {static_cast<std::uint32_t>(index / kMostGenerations),
            static_cast<std::uint32_t>(index % kMostGenerations)};
  }
};

// How a table is used.
struct TableShape {
  std::size_t slots;  // a power of two
  int num_ranks;      // with one for all other hosts, if there are any
  std::uint32_t generations = 2;
  MemberId outside = {};  // the rank that arrives for all other hosts; no rank when there are none
};

enum class Arrival {
  kWaiting,   // entered; other ranks have not arrived yet
  kLast,      // entered, and the request is ready: the caller must launch it
  kHostLast,  // entered, and only the other hosts' arrival is missing: the caller must report it
  kBusy,      // not entered: another ticket uses the generation
  kMismatch,  // not entered: the manifest differs from another rank's
  kTwice,     // not entered: this rank has arrived already
  kAborted,   // not entered: the job was aborted meanwhile
};

class ReadinessTable {
 public:
  static constexpr std::size_t kKeyBytes = 104;  // limit of a key's text, its final zero byte included

  // Returns the bytes that such a table takes.
  static std::size_t Bytes(const TableShape& shape);

  // Creates a view of shared memory at `memory`, aligned to 64 bytes, which is zeroed or already a table.
  // `active` is the mask of the ranks that requests wait for.
  ReadinessTable(std::byte* memory, const TableShape& shape, const std::atomic<std::uint64_t>* active,
                 const AbortRecord* abort);

  // Finds or inserts `key`. If a text is longer than kKeyBytes, the part behind the limit counts by its hash
  // alone. Errors: Internal when the table is full, naming the capacity and the setting. Any thread.
  Status FindSlot(const std::string& key, std::uint32_t* slot);

  // Enters rank `rank` at PlaceOf(slot, ticket). On kMismatch, sets *other_manifest to the manifest of the
  // rank that arrived first, and *other_rank to that rank. Any thread.
  Arrival Arrive(std::uint32_t slot, std::uint64_t ticket, int rank, const Manifest& manifest,
                 const Cell& cell, Manifest* other_manifest, int* other_rank);

  // Makes every request ready that waits for no active rank any more, and returns their places; the caller
  // must launch them. To be called after a bit of `active` was cleared. Any thread.
  std::vector<Place> MakeReadyAfterLeaving();

  // A request at which all active ranks of this host have arrived, and the other hosts have not.
  struct HostReady {
    Place place;
    std::uint64_t ticket;
    MemberMask arrived;
  };
  // Fills *ready and returns true when the request at `place` is one. Any thread.
  bool IsHostReady(Place place, HostReady* ready) const;
  // Returns all of them. To be called after a bit of `active` was cleared. Any thread.
  std::vector<HostReady> AllHostReady() const;

  // Returns the hash of a slot's key, and its text up to kKeyBytes. `slot` has a key.
  std::uint64_t KeyHash(std::uint32_t slot) const;
  std::string KeyText(std::uint32_t slot) const;

  // Returns the manifest of the request at `place`. Valid like a cell.
  const Manifest& ManifestAt(Place place) const;

  Place PlaceOf(std::uint32_t slot, std::uint64_t ticket) const {
    return {slot, static_cast<std::uint32_t>(ticket % shape_.generations)};
  }

  // Returns the mask of the ranks that have arrived at `slot` for `ticket`, or 0 when another ticket uses the
  // generation. The result is reliable for a caller whose rank has arrived and has not acknowledged yet. Any
  // thread.
  std::uint64_t ArrivedMask(std::uint32_t slot, std::uint64_t ticket) const;

  // Returns the mask of the participants, or 0 while the request is not ready. Reliable as above. Any thread.
  std::uint64_t Participants(std::uint32_t slot, std::uint64_t ticket) const;

  // Returns the mask of the ranks that keep the generation at `place` in use: those that have not arrived at
  // its request or, once that is ready, have not acknowledged it. Returns 0 when the generation is free. For
  // messages only, since the result may be out of date. Any thread.
  std::uint64_t HeldUpBy(Place place) const;

  // Returns rank `rank`'s cell. Valid from readiness until the caller's own Acknowledge.
  Cell CellOf(Place place, int rank) const;

  // A tensor that was on a device, as its cell says, lies in the rank's arena by now. Valid like a cell; the
  // other ranks find it in the cell from then on.
  void MoveToArena(Place place, int rank, std::uint64_t input_offset, std::uint64_t output_offset);

  // Returns the state of the batch whose first request is at `place`. Valid like a cell.
  BatchState& BatchAt(Place place) const;

  // Marks that rank `rank`, a participant, no longer needs the cells of `place`. Returns true if this has
  // retired the generation. Any thread, once for each request.
  bool Acknowledge(Place place, int rank);

  // Makes all generations free; keys keep their slots. No other thread of any process may use the table
  // meanwhile (Note [Restart] in failure_record.h).
  void Clear();

  std::size_t slots() const { return shape_.slots; }
  // Whether `place`, which comes from shared memory, is one of this table.
  bool Has(Place place) const { return place.slot < shape_.slots && place.generation < shape_.generations; }

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
  static std::size_t SlotBytes(const TableShape& shape);

  struct Fixed {
    std::atomic<std::uint32_t> num_used;  // number of slots that have a key
  };
  Fixed* const fixed_;
  std::byte* const memory_;  // where the slots begin
  const TableShape shape_;
  const MemberMask outside_;
  const std::atomic<std::uint64_t>* const active_;
  const AbortRecord* const abort_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_READINESS_TABLE_H_
