// HierarchicalTransfer: moves allreduces and broadcasts between hosts, each byte as often as it must.
//
// The tensors of a batch are cut into pieces. On each host one rank *carries* a piece: they take turns, so
// all links of a host are in use at a time. The carriers of a piece on the H hosts do this:
//
//   1. Each reduces the inputs of its own host, out of the arenas, into one partial result.
//   2. It sends part h of that to the carrier on host h, for each h.
//   3. Each has now all partial results of its own part. It reduces them, in the order of the hosts.
//   4. It sends the result to all others.
//   5. Each writes the whole result into the outputs of its host.
//
// A host sends 2 (H - 1) / H of the bytes of a tensor, however many ranks it has, which is the least that is
// possible. Small pieces go in one round, not two: each carrier sends all of its partial result to all
// others. So does everything between two hosts, since it is as many bytes. All add the partial results in the
// order of the hosts, so the result is bitwise the same on all ranks, and from run to run. In a
// broadcast, only the root's host counts in 3.
//
// A host with one rank has nothing to reduce in 1, and sends out of the input where it can. It writes the
// output, which may be the same memory, when that has been sent.
//
// The computations of 1, 3 and 5 are in host_reduction.h, which also says what crosses in 16 bits.
//
// Some pieces of a rank, 64 between two hosts, are under way at a time: while one crosses, the next is
// reduced. Two streams of the wire carry rounds 2 and 4. Pieces enter each round in their order, so sends and
// receives meet.
//
// A request of which a rank has left the communicator goes by GatherTransfer.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_HIERARCHICAL_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_HIERARCHICAL_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/collectives/backends/wire/piece_plan.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/wire.h"

namespace tf_smddp {

class HierarchicalTransfer : public Transfer {
 public:
  // `communicator` is its number, `hosts` are its ranks by host, and this is rank `rank`. `wire` outlives it.
  // `inputs` owns the memory in which the inputs of this rank lie.
  HierarchicalTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts, int rank,
                       std::shared_ptr<void> inputs);

  bool Takes(const ResolvedRequest& request) const override;
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return next_ >= plan_.pieces() && open_ == 0; }
  bool polls() const override { return !done(); }
  void Abandon(const Status* job_end) override;
  void Reset() override;

 private:
  // A piece under way.
  struct Slot {
    enum State {
      kExchanging,    // partial results cross
      kDistributing,  // results cross
      kDraining,      // the outputs are written, and the wire still reads what was sent
    };
    State state = kExchanging;
    std::uint64_t piece = 0;
    std::uint64_t bytes = 0;
    bool whole = false;  // in one round
    std::shared_ptr<std::byte> memory;
    const std::byte* partial = nullptr;
    bool lent = false;  // `partial` is an input; the output may be the same memory
    std::byte* result = nullptr;
    std::vector<std::byte*> others;  // partial results of the own part, or of all, by host
    std::vector<Wire::Movement> receives, sends;
  };

  void Begin(std::uint64_t piece);
  bool Advance(Slot* slot, bool first_of_round);
  const std::byte* LoneInput(std::uint64_t piece) const;
  void ReduceHere(std::uint64_t piece, std::uint64_t bytes, std::byte* partial);
  int InputsOf(const PiecePlan::Segment& segment, const void** from) const;
  int PartialsOf(const Slot& slot, const PiecePlan::Segment& segment, const void** from) const;
  int OutputsOf(const PiecePlan::Segment& segment, void** to) const;
  void ReduceHosts(Slot* slot);
  void WriteOut(const Slot& slot);
  void ReduceAndWriteOut(const Slot& slot);
  bool IsOn(std::size_t host, RankId rank) const;
  PiecePlan::Part OwnPart(const Slot& slot) const;
  RankId CarrierOn(std::size_t host, std::uint64_t piece) const;
  bool AllEnded(std::vector<Wire::Movement>* movements);
  std::shared_ptr<std::byte> TakeMemory();

  Wire* const wire_;
  const std::shared_ptr<void> inputs_;
  const std::uint32_t communicator_;
  const std::vector<std::vector<int>> hosts_;
  const std::uint64_t least_piece_bytes_, most_piece_bytes_;
  const std::size_t most_slots_;
  std::size_t host_ = 0;          // this one
  std::uint64_t index_ = 0;       // of this rank among those of its host
  std::uint64_t most_ranks_ = 0;  // of a host
  std::uint64_t num_ranks_ = 0;
  std::uint64_t memory_bytes_ = 0;

  // The batch under way.
  std::vector<const ResolvedRequest*> requests_;
  PiecePlan plan_;
  bool past_cache_ = false;
  std::uint64_t next_ = 0;  // piece for this rank
  std::size_t open_ = 0;    // slots that are not draining

  std::vector<const void*> partials_;                    // scratch
  std::deque<Slot> slots_;                               // in the order of the pieces
  std::vector<std::shared_ptr<std::byte>> free_memory_;  // of slots
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_HIERARCHICAL_TRANSFER_H_
