// SpanAllocator: which parts of a segment are in use. Pure bookkeeping; it never touches the memory.
#ifndef TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_
#define TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <mutex>

namespace tf_smddp {

// Hands out ranges ("spans") of [begin, end), first fit, lowest offset first, neighbours joined when freed.
// Any thread.
class SpanAllocator {
 public:
  static constexpr std::uint64_t kAlignment = 64;            // bytes; of offsets and of reserved lengths
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // "no room"

  // begin and end are multiples of kAlignment.
  SpanAllocator(std::uint64_t begin, std::uint64_t end);

  // Returns the offset of a span of at least `bytes` bytes, or kNone. bytes may be 0.
  std::uint64_t Allocate(std::uint64_t bytes);

  // Gives back what Allocate(bytes) returned, with the same `bytes`.
  void Free(std::uint64_t offset, std::uint64_t bytes);

  // Bytes that are handed out, rounded up to kAlignment each.
  std::uint64_t used_bytes() const;

 private:
  mutable std::mutex mu_;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> length; guarded by mu_
  std::uint64_t used_bytes_ = 0;                 // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_
