// BouncePool: where bounce buffers have their spans: in the arena, in memory that the device can copy from
// and to by itself.
//
// Place in the stack: above the arena, below bounce_buffer.h; each job has one. To pin memory takes much
// longer than a copy. So the pool takes *slabs* from the arena, has each pinned once, and allocates spans
// from them. A slab stays in the pool until the end of the job.
#ifndef TF_SMDDP_KERNELS_ENGINE_DEVICES_BOUNCE_POOL_H_
#define TF_SMDDP_KERNELS_ENGINE_DEVICES_BOUNCE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/memory/arena.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/span_allocator.h"

namespace tf_smddp {

// All methods: any thread.
class BouncePool {
 public:
  explicit BouncePool(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}
  // No span is in use.
  ~BouncePool();
  BouncePool(const BouncePool&) = delete;
  BouncePool& operator=(const BouncePool&) = delete;

  // Sets *span to one of at least `bytes` bytes, for copies from or to memory of `kind`; to nullptr when the
  // arena is full. Error: Internal when the memory cannot be pinned.
  Status Allocate(MemoryKind* kind, std::uint64_t bytes, void** span);

  // Frees a span. While the arena is in quarantine it is not reused, as spans of the arena.
  void Free(void* span);

  const Arena& arena() const { return *arena_; }

 private:
  struct Slab {
    std::byte* data;
    std::uint64_t bytes;
    MemoryKind* kind;
    SpanAllocator spans;
  };

  Slab* SlabOf(const void* span);
  void FreeQuarantined();

  const std::shared_ptr<Arena> arena_;
  std::mutex mu_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // guarded by mu_
  std::vector<void*> quarantined_;            // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_DEVICES_BOUNCE_POOL_H_
