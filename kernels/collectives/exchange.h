// Exchange: the common part of allgather and alltoall. Each participant sends a range of its input to each
// participant, and its output is what it receives, in the order of the senders.
//
// Direct: each participant copies its own output out of the inputs. It reads and writes its output once, the
// least that memory allows.
//
// Staged: chunk j is elements [j * capacity, (j + 1) * capacity) of every input that is so long.
//   StageIn   copies that range of the own input into the own window
//   StageOut  copies from each window what is for this participant, and the own part from the own input
// Each participant's input is copied in once, and its output is copied out once. Inputs of different lengths
// end in different chunks.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_EXCHANGE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_EXCHANGE_H_

#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"

namespace tf_smddp {

class Exchange : public Collective {
 public:
  Reach reach() const override { return Reach::kOwnOutput; }
  std::uint64_t OutputCount(const Call& call, ParticipantId participant) const override;
  Shard PartFor(const Call& call, ParticipantId sender, ParticipantId receiver) const override;
  std::vector<std::int64_t> OutputRows(const Call& call, ParticipantId participant) const override;
  void Direct(const Call& call, ParticipantId self, const void* const* inputs, void* const* outputs,
              std::uint64_t begin, std::uint64_t count) const override;
  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override;
  void StageIn(const Call& call, const StagedChunk& chunk) const override;
  void Combine(const Call&, const StagedChunk&) const override {}
  void StageOut(const Call& call, const StagedChunk& chunk) const override;

 protected:
  // Returns the rows of `sender`'s input that are for `receiver`.
  virtual Shard RowsFor(const Call& call, ParticipantId sender, ParticipantId receiver) const = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_EXCHANGE_H_
