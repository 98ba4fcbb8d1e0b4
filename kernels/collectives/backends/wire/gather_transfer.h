// GatherTransfer: moves requests whose participants are on several hosts.
//
// Steps: each rank sends the ranks on other hosts what they need of its input, and waits for what it needs
// itself, and until all ranks of its host have sent. Then the ranks of each host do what they do on one host,
// with what has come as the inputs of the others: a chunk at a time for all outputs of the host, or each its
// own output. So the inputs are added in the order of the ranks, and results are bitwise the same as on one
// host.
//
// Data that all ranks of a host need goes there once, to one of them, which forwards it to the others: in an
// allgather, a host with n of N ranks sends n (H - 1) inputs. Data that only one rank needs goes to that
// rank: in an all-to-all, a rank sends N - n shards. Other transfers send less for the rest:
// allreduces and broadcasts by HierarchicalTransfer, reduce-scatters by ReducescatterTransfer.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_GATHER_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_GATHER_TRANSFER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/collectives/backends/shared_memory/chunk_transfer.h"
#include "kernels/collectives/backends/shared_memory/own_output_transfer.h"
#include "kernels/collectives/transfer.h"
#include "kernels/common/wire.h"

namespace tf_smddp {

class GatherTransfer : public Transfer {
 public:
  // `communicator` is its number, `hosts` are its ranks by host, and this is rank `rank`. `wire` outlives it.
  GatherTransfer(Wire* wire, std::uint32_t communicator, std::vector<std::vector<int>> hosts, int rank,
                 std::uint64_t chunk_bytes);

  bool Takes(const ResolvedRequest& request) const override { return !request.on_devices; }
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return chunks_.done() && own_outputs_.done(); }
  bool polls() const override { return !wanted_.empty(); }
  void Reset() override;

 private:
  // Names an input: the incarnation, the number of its request, and the rank that sends it.
  using Source = std::tuple<std::uint64_t, std::uint64_t, int>;
  struct Wanted {
    std::size_t request;
    ParticipantId participant;
    std::uint64_t begin, bytes;  // of the part of its input
  };

  void Send(const ResolvedRequest& request, std::uint64_t number);
  void SendPart(const ResolvedRequest& request, std::uint64_t number, RankId to, Shard part,
                MemberMask others);
  void Forward(const Wire::Message& message);
  void Expect(std::size_t index, std::uint64_t number);
  bool Receive();
  bool Take(Wire::Message message);

  Wire* const wire_;
  const Wire::Channel channel_;
  const std::vector<std::vector<int>> hosts_;
  const int rank_;
  const std::vector<int>& here_;  // the ranks of this host
  ChunkTransfer chunks_;
  OwnOutputTransfer own_outputs_;

  std::uint64_t incarnation_ = 0;   // counted by Reset
  std::uint64_t next_number_ = 0;   // requests are numbered through, alike on all ranks
  std::uint64_t first_number_ = 0;  // of the batch under way
  std::vector<ResolvedRequest> requests_;
  BatchState* batch_ = nullptr;
  std::uint32_t participants_ = 0;       // of this host
  bool joined_ = false;                  // this rank has
  std::map<Source, Wanted> wanted_;      // of the batch under way, those that have not come
  std::map<Source, std::string> early_;  // for later batches
  std::deque<std::string> messages_;     // that hold the inputs of the batch under way
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_GATHER_TRANSFER_H_
