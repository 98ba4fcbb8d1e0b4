// ReducescatterTransfer: moves reduce-scatters between hosts, so that a host sends each rank of another host
// one sum, however many ranks it has itself.
//
// A rank's *shards* are what it gets of the requests of a batch. They are cut into pieces. For each rank of
// another host, one rank of this host adds what its host has of each piece, and sends the partial result.
// The receiver adds the partial results of all hosts, in their order, into its output. So a host with n of N
// ranks sends N - n shards, which is the least that is possible, and a shard is bitwise what an allreduce
// gives there.
//
// The computations are in host_reduction.h. A request of which a rank has left the communicator goes by
// GatherTransfer.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_REDUCESCATTER_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_REDUCESCATTER_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/collectives/backends/wire/piece_plan.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/wire.h"

namespace tf_smddp {

class ReducescatterTransfer : public Transfer {
 public:
  // `communicator` is its number, `hosts` are its ranks by host, and this is rank `rank`. `wire` outlives it.
  ReducescatterTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts,
                        int rank);

  bool Takes(const ResolvedRequest& request) const override;
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override {
    return next_send_ == to_send_.size() && next_receive_ == own_pieces_ && receiving_.empty();
  }
  bool polls() const override { return !done(); }
  void Abandon(const Status* job_end) override;
  void Reset() override { Abandon(nullptr); }

 private:
  // A piece of another rank's shards, of which this rank sends its host's partial result.
  struct Outgoing {
    ParticipantId receiver;
    RankId rank;
    std::uint64_t piece;
  };
  // A piece of the own shards.
  struct Incoming {
    std::uint64_t piece;
    std::shared_ptr<std::byte> memory;
    std::vector<std::byte*> partials;  // by host; nullptr for this one
    std::vector<Wire::Movement> receives;
  };

  PiecePlan PlanOf(ParticipantId receiver) const;
  Shard ShardOf(const PiecePlan::Segment& segment, ParticipantId receiver) const;
  void BeginReceive(std::uint64_t piece);
  void BeginSend(const Outgoing& outgoing);
  bool EndReceive();
  void ReduceHere(const PiecePlan& plan, ParticipantId receiver, std::uint64_t piece, std::byte* partial);

  Wire* const wire_;
  const int stream_;
  const std::vector<std::vector<int>> hosts_;
  std::size_t host_ = 0;   // this one
  std::size_t place_ = 0;  // of this rank among those of its host
  std::uint64_t num_ranks_ = 0;

  // The batch under way.
  std::vector<const ResolvedRequest*> requests_;
  std::vector<Outgoing> to_send_;
  std::size_t next_send_ = 0;
  PiecePlan own_;
  std::uint64_t own_pieces_ = 0, next_receive_ = 0;
  std::deque<Incoming> receiving_;
  std::vector<Wire::Movement> sending_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_REDUCESCATTER_TRANSFER_H_
