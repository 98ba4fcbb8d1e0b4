// StagedTransfer: moves requests whose tensors lie in private memory, through windows in shared memory.
//
// Steps: every rank runs the same requests in the same order (the launch log's). Their chunks are numbered
// through, over the whole incarnation; chunk c uses window c mod kWindows of every rank. Each rank publishes
// how many chunks it has staged in, combined and copied out; a step for chunk c waits until all ranks have
// done the one before:
//
//   stage in c    needs copied_out > c - kWindows on all ranks (nobody reads the window any more)
//   combine c     needs staged > c on all ranks
//   copy out c    needs combined > c on all ranks
//
// So up to kWindows chunks are under way at once, and a rank waits only for ranks, never for space. Bytes:
// each rank writes its input to its windows, reads its shard of all windows, and reads the result.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_STAGED_TRANSFER_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_STAGED_TRANSFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/collectives/backend.h"
#include "kernels/collectives/chunk_plan.h"
#include "kernels/collectives/transfer.h"

namespace tf_smddp {

// The progress that one rank publishes, in chunks since the start of the incarnation.
struct alignas(64) StagedProgress {
  void Store(std::uint64_t chunks) {
    for (auto* each : {&staged, &combined, &copied_out}) each->store(chunks, std::memory_order_seq_cst);
  }

  std::atomic<std::uint64_t> staged;
  std::atomic<std::uint64_t> combined;
  std::atomic<std::uint64_t> copied_out;
};

class StagedTransfer : public Transfer {
 public:
  // The members share the progress of each, and then the windows of each.
  static std::size_t SharedBytes(std::uint64_t chunk_bytes, int num_members);

  // `shared` has SharedBytes; `index` is this rank's among the members.
  StagedTransfer(std::byte* shared, int index, int num_members, std::uint64_t chunk_bytes);

  bool Takes(const ResolvedRequest& request) const override { return !request.on_devices; }
  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) override;
  // Does at most one chunk of each of the three kinds.
  Progress Step() override;
  bool done() const override { return done_; }
  // Nobody waits for this rank's chunks any more.
  void Leave() override { progress_[index_].Store(~std::uint64_t{0}); }
  void Renew(MemberMask active) override;
  void Reset() override;

 private:
  using Method = void (Collective::*)(const Call&, const StagedChunk&) const;

  std::uint64_t Capacity(const Call& call) const;
  void Run(Method method, std::uint64_t chunk) const;
  std::uint64_t Slowest(std::atomic<std::uint64_t> StagedProgress::* counter) const;

  StagedProgress* const progress_;  // by member, as the windows
  std::byte* const windows_;
  const int index_, num_members_;
  const std::uint64_t chunk_bytes_;

  std::vector<const ResolvedRequest*> requests_;
  ChunkPlan plan_;
  bool done_ = true;
  std::uint64_t base_ = 0;  // number of the first chunk of requests_
  std::uint64_t staged_ = 0, combined_ = 0, copied_out_ = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_STAGED_TRANSFER_H_
