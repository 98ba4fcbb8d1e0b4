// GatherTransfer: moves requests whose participants are on several hosts.
//
// Steps: each rank sends the ranks on other hosts what they need of its input, and waits for what it needs
// itself, and until all ranks of its host have what they need. Then the ranks of each host do what they do on
// one host, with what has come as the inputs of the others: a chunk at a time for all outputs of the host, or
// each its own output. So the inputs are added in the order of the ranks, and results are bitwise the same as
// on one host.
//
// Data that all ranks of a host need goes there once, to one of them, which forwards it to the others: in an
// allgather, a host with n of N ranks sends n (H - 1) inputs. Data that only one rank needs goes to that
// rank: in an all-to-all, a rank sends N - n shards. HierarchicalTransfer sends less for the rest.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_GATHER_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_GATHER_TRANSFER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/collectives/backends/shared_memory/chunk_transfer.h"
#include "kernels/collectives/backends/shared_memory/own_output_transfer.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/wire.h"

namespace tf_smddp {

class GatherTransfer : public Transfer {
 public:
  // `communicator` is its number, `hosts` are its ranks by host, and this is rank `rank`. `wire` outlives it.
  // `inputs` owns the memory in which the inputs of this rank lie.
  GatherTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts, int rank,
                 std::shared_ptr<void> inputs, std::uint64_t chunk_bytes);

  bool Takes(const ResolvedRequest& request) const override { return !request.on_devices; }
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return joined_ && chunks_.done() && own_outputs_.done(); }
  bool polls() const override { return !joined_; }
  void Abandon(const Status* job_end) override;
  void Reset() override;

 private:
  // The part of a sender's input that is for the ranks of one host.
  struct Routes {
    std::vector<RankId> receivers;  // the ranks that need something
    std::vector<Shard> parts;       // what each of them needs
    std::size_t chosen;             // the receiver that forwards it to the others; else there are as many
  };
  // The part of another host's input that comes to this rank, and is forwarded.
  struct Coming {
    std::vector<Wire::Movement> receives;
    std::shared_ptr<std::byte> memory;
    std::uint64_t bytes;
    std::vector<RankId> others;
  };

  static Routes RoutesOf(const ResolvedRequest& request, ParticipantId sender, const std::vector<int>& host);
  void Send(const ResolvedRequest& request);
  void Receive(ResolvedRequest* request, ParticipantId sender);
  void BeginSend(RankId to, const std::byte* data, std::uint64_t bytes, const std::shared_ptr<void>& owner);
  bool Move();

  Wire* const wire_;
  const int stream_;
  const std::vector<std::vector<int>> hosts_;
  const std::shared_ptr<void> memory_of_inputs_;
  const std::vector<int>& here_;  // the ranks of this host
  ChunkTransfer chunks_;
  OwnOutputTransfer own_outputs_;

  // The batch under way.
  std::vector<ResolvedRequest> requests_;
  BatchState* batch_ = nullptr;
  std::uint32_t participants_ = 0;  // of this host
  bool joined_ = true;              // this rank has all that it needs, and so have those to whom it sends
  std::vector<Wire::Movement> sends_;
  std::deque<Coming> coming_;                       // in the order in which it is forwarded
  std::vector<std::shared_ptr<std::byte>> inputs_;  // that have come
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_GATHER_TRANSFER_H_
