// OwnOutputTransfer: moves requests of which each rank makes its own output, straight out of the other ranks'
// inputs, which lie in arenas.
//
// Steps: each rank makes its output, chunk by chunk. Bytes: each rank reads what its output is made of, and
// writes it once. Ranks do not wait for each other.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_OWN_OUTPUT_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_OWN_OUTPUT_TRANSFER_H_

#include <cstdint>
#include <vector>

#include "kernels/collectives/chunk_plan.h"
#include "kernels/collectives/transfer.h"

namespace tf_smddp {

class OwnOutputTransfer : public Transfer {
 public:
  explicit OwnOutputTransfer(std::uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  bool Takes(const ResolvedRequest& request) const override { return request.reachable; }
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  Progress Step() override;
  bool done() const override { return done_; }
  void Reset() override { done_ = true; }

 private:
  const std::uint64_t chunk_bytes_;
  std::vector<const ResolvedRequest*> requests_;
  ChunkPlan plan_;
  std::uint64_t next_ = 0;  // chunk
  bool done_ = true;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_OWN_OUTPUT_TRANSFER_H_
