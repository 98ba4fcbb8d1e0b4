// StagedPipeline: moves requests whose tensors lie in private memory, through windows in shared
// memory.
//
// Place in the stack: the shared-memory backend's slow path (the fast one, Collective::Direct on memory that
// is in the arenas, needs no more than a loop). Comm thread only. It never waits: Step does what can be done
// now.
//
// Every rank runs the same list of transfers in the same order (the launch log's). Their chunks are numbered
// through, over the whole epoch; chunk c uses window c mod kWindows of every rank. Each rank
// publishes how many chunks it has staged in, combined and copied out; a step for chunk c waits until all
// ranks have done the one before:
//
//   stage in c    needs copied_out > c - kWindows on all ranks (nobody reads the window any more)
//   combine c     needs staged > c on all ranks
//   copy out c    needs combined > c on all ranks
//
// so up to kWindows chunks are under way at once, and a rank waits only for ranks, never for space.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_STAGED_PIPELINE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_STAGED_PIPELINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/collectives/backends/shared_memory/window.h"
#include "kernels/collectives/chunk_plan.h"
#include "kernels/collectives/collective.h"

namespace tf_smddp {

// One rank's published progress, in chunks since the start of the epoch.
struct StagedProgress {
  std::atomic<std::uint64_t>* staged;
  std::atomic<std::uint64_t>* combined;
  std::atomic<std::uint64_t>* copied_out;
};

// One request of this rank.
struct StagedTransfer {
  Call call;
  int rank;                  // this rank's number among those that take part
  std::vector<int> members;  // which members of the communicator those are
  const void* input;
  void* output;
};

class StagedPipeline {
 public:
  // `windows` (each of WindowBytes) and `progress` are by member of the communicator; `index` is this rank's.
  StagedPipeline(int index, std::vector<std::byte*> windows, std::vector<StagedProgress> progress,
                 std::uint64_t chunk_bytes);

  // Counts from 0 again, on all ranks (Note [Restart] in kernels/control/failure_record.h); drops what was
  // under way.
  void Reset();

  // Takes the next transfers; only when done(). The memory they name stays valid until done(), or until the
  // caller stops calling Step for good.
  void Start(std::vector<StagedTransfer> transfers);

  // Does at most one chunk of each kind. False when nothing could be done: other ranks are behind.
  bool Step();

  bool done() const { return copied_out_ == base_ + plan_.total(); }

 private:
  using Method = void (Collective::*)(const Call&, const StagedChunk&) const;

  std::uint64_t Capacity(const Call& call) const;
  void Run(Method method, std::uint64_t chunk) const;
  std::uint64_t Slowest(std::atomic<std::uint64_t>* StagedProgress::* counter) const;

  const int index_;
  const std::vector<std::byte*> windows_;
  const std::vector<StagedProgress> progress_;
  const std::uint64_t chunk_bytes_;

  std::vector<StagedTransfer> transfers_;
  ChunkPlan plan_;
  std::uint64_t base_ = 0;  // number of the first chunk of transfers_
  std::uint64_t staged_ = 0, combined_ = 0, copied_out_ = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_SHARED_MEMORY_STAGED_PIPELINE_H_
