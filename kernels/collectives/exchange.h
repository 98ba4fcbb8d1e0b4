// Exchange: what allgather and alltoall have in common. Each rank sends a range of its input to each rank; a
// rank's output is what it gets, in the order of the senders.
//
// Direct: each rank copies its own output out of the inputs. Per rank, one read and one write of its output,
// the least that memory allows.
//
// Staged: chunk j is elements [j * capacity, (j + 1) * capacity) of every rank's input, as far as it has
// them.
//   StageIn   copies that range of the own input into the own window
//   StageOut  copies out of each window what is for this rank, and the own part from the own input
// Per rank: its input in once, its output out once. Inputs of different lengths run out of chunks at
// different times; the others go on.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_EXCHANGE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_EXCHANGE_H_

#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"

namespace tf_smddp {

class Exchange : public Collective {
 public:
  Reach reach() const override { return Reach::kOwnOutput; }
  std::uint64_t OutputCount(const Call& call, int rank) const override;
  std::vector<std::int64_t> OutputRows(const Call& call, int rank) const override;
  void Direct(const Call& call, int rank, const void* const* inputs, void* const* outputs,
              std::uint64_t begin, std::uint64_t count) const override;
  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override;
  void StageIn(const Call& call, const StagedChunk& chunk) const override;
  void Combine(const Call&, const StagedChunk&) const override {}
  void StageOut(const Call& call, const StagedChunk& chunk) const override;

 protected:
  // The rows of `sender`'s input that are for `receiver`.
  virtual Shard RowsFor(const Call& call, int sender, int receiver) const = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_EXCHANGE_H_
