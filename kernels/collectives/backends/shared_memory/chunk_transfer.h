// ChunkTransfer: moves requests of which any rank can do any part, since all their tensors lie in arenas.
//
// Steps: the tensors of the batch are cut into chunks; a rank claims a chunk from a shared counter, and does
// it for all ranks (Collective::Direct). Bytes: each input is read once and each output written once, on the
// whole host. A rank that is not scheduled delays nobody. The last chunk of a tensor may be shorter.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_CHUNK_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_CHUNK_TRANSFER_H_

#include <cstdint>
#include <vector>

#include "kernels/collectives/chunk_plan.h"
#include "kernels/collectives/transfer.h"

namespace tf_smddp {

class ChunkTransfer : public Transfer {
 public:
  // `index`: of this rank in the communicator, which has `size` members. `chunk_bytes`: the most of a chunk.
  ChunkTransfer(int index, int size, std::uint64_t chunk_bytes)
      : from_back_(index % 2 == 1), size_(static_cast<std::uint64_t>(size)), chunk_bytes_(chunk_bytes) {}

  bool Takes(const ResolvedRequest& request) const override {
    return request.reachable && request.all_outputs();
  }
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return batch_ == nullptr; }
  void Reset() override { batch_ = nullptr; }

 private:
  std::uint64_t ChunkBytes() const;

  const bool from_back_;
  const std::uint64_t size_;
  const std::uint64_t chunk_bytes_;
  std::vector<const ResolvedRequest*> requests_;
  ChunkPlan plan_;
  BatchState* batch_ = nullptr;  // of the batch under way
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_CHUNK_TRANSFER_H_
