// HierarchicalTransfer: moves allreduces, broadcasts and reduce-scatters between hosts, each byte as often as
// it must.
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
// order of the hosts, so the result is bitwise the same on all ranks, and from run to run.
//
// With many hosts 2 to 4 go in groups of hosts, in two rounds each, so that a host sends fewer messages and
// larger ones. Then the hosts of each group are added in order, and rounded, and then the groups. Whether a
// tensor goes so, and the groups, follow from the number of hosts and from that tensor.
//
// A reduce-scatter is 1 to 3. Its parts are the shards of one rank of each host, the carrier there, which
// writes its output in 3. A host that has fewer ranks than others carries pieces without a part of its own.
// So a host with n of N ranks sends N - n shards, and a shard is bitwise what an allreduce gives there.
//
// HostExchange (piece_plan.h) says who sends what in 2 and 4, and host_reduction.h has the computations, and
// what crosses in 16 bits. A host with one rank has nothing to reduce in 1, and sends out of the input where
// it can.
//
// Some pieces of a rank, 64 between two hosts, are under way at a time: while one crosses, the next is
// reduced. Two streams of the wire carry steps 2 and 4. Pieces enter each round in their order, so sends and
// receives meet. A round ends when all has come and all has gone, so memory that was sent can be written.
//
// A request of which a rank has left the communicator goes by GatherTransfer.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_HIERARCHICAL_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_HIERARCHICAL_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/collectives/backends/wire/piece_plan.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/wire.h"

namespace tf_smddp {

class HierarchicalTransfer : public Transfer {
 public:
  // `communicator` is its number, `hosts` are its ranks by host, and this is rank `rank`. `wire` outlives it.
  // `inputs` owns the memory in which the inputs of this rank lie. `grouped_hosts`: from so many hosts on,
  // all is exchanged in groups; 0 for the rule of InGroups.
  HierarchicalTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts, int rank,
                       std::shared_ptr<void> inputs, std::size_t grouped_hosts = 0);

  bool Takes(const ResolvedRequest& request) const override;
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return next_ >= pieces_ && slots_.empty(); }
  bool polls() const override { return !done(); }
  void Abandon(const Status* job_end) override;
  void Reset() override { Abandon(nullptr); }

 private:
  struct Part {
    std::vector<PiecePlan::Segment> segments;  // their offsets are in the part
    std::uint64_t bytes;
    std::uint64_t offset;   // in the slot's memory
    const std::byte* here;  // what this host has of it: in the slot's memory, or an input
  };
  // Another host's sum of some parts.
  struct Partial {
    std::size_t host;
    HostExchange::Parts parts;
    const std::byte* come;
  };
  // A piece under way.
  struct Slot {
    std::uint64_t turn;  // says who carries it
    bool scatters;       // it is of reduce-scatters
    const HostExchange* exchange;
    std::vector<Part> parts;
    std::shared_ptr<std::byte> memory;
    std::size_t round = 0;
    std::vector<Partial> partials;                // of the round, by host
    std::vector<Wire::Movement> receives, sends;  // likewise
  };

  // The requests of a batch whose pieces go the same way.
  struct Bundle {
    bool grouped, scatters;
    PiecePlan plan;            // but of reduce-scatters each rank has its own
    std::uint64_t begin, end;  // the numbers of their pieces
  };

  bool InGroups(const ResolvedRequest& request) const;
  bool IsIn(const Bundle& bundle, const ResolvedRequest& request) const;
  void AddBundle(bool grouped, bool scatters);
  PiecePlan PlanOf(const Bundle& bundle, ParticipantId receiver) const;
  const Bundle& BundleOf(std::uint64_t piece) const;
  std::uint64_t TurnOf(std::uint64_t piece) const;
  void Skip();
  void Begin(std::uint64_t piece);
  void LayOut(std::uint64_t piece, Slot* slot) const;
  void BeginRound(Slot* slot);
  bool AllEnded(std::vector<Wire::Movement>* movements);
  bool EndRound(Slot* slot);
  RankId CarrierOn(const Slot& slot, std::size_t host) const;
  static std::uint64_t BytesOf(const Slot& slot, HostExchange::Parts parts);
  void ReduceHere(Slot* slot);
  void ReduceHosts(Slot* slot, bool last, bool writes);
  void WriteOut(const Slot& slot);
  int InputsOf(const PiecePlan::Segment& segment, const void** from) const;
  int OutputsOf(const PiecePlan::Segment& segment, void** to) const;

  Wire* const wire_;
  const std::shared_ptr<void> inputs_;
  const int exchange_stream_, distribute_stream_;
  const std::vector<std::vector<int>> hosts_;
  const std::size_t grouped_hosts_;
  HostExchange whole_, direct_, grouped_;
  const std::uint64_t least_piece_bytes_, most_piece_bytes_, shard_bytes_;
  const std::size_t most_slots_;
  std::size_t host_ = 0;          // this one
  std::uint64_t index_ = 0;       // of this rank among those of its host
  std::uint64_t most_ranks_ = 0;  // of a host
  std::uint64_t num_ranks_ = 0;
  std::uint64_t memory_bytes_ = 0;

  // The batch under way.
  std::vector<const ResolvedRequest*> requests_;
  std::vector<Bundle> bundles_;
  std::uint64_t pieces_ = 0;
  bool past_cache_ = false;
  std::uint64_t next_ = 0;                               // piece for this rank
  std::deque<Slot> slots_;                               // in the order of the pieces
  std::vector<std::shared_ptr<std::byte>> free_memory_;  // of slots
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_HIERARCHICAL_TRANSFER_H_
