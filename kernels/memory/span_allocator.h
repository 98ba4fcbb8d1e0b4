// SpanAllocator: allocates ranges of a segment. It keeps the books only and never touches the memory.
//
// Place in the stack: the bottom. Arena (arena.h) adds the memory and the lock.
#ifndef TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_
#define TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tf_smddp {

// Allocates ranges ("spans") of [begin, end). Free spans are kept by size class, and joined with free
// neighbours as soon as they are freed (two-level segregated fit: Masmano et al., "TLSF: a new dynamic memory
// allocator for real-time systems", ECRTS 2004), so the cost of a call does not depend on their number. Among
// spans of a similar length, it takes the one that was freed last, since its memory is most likely still in a
// cache.
//
// It also records which free spans may still occupy memory, and since when (Tick, TakeIdle), so that their
// memory can be returned to the system.
//
// Not thread-safe.
class SpanAllocator {
 public:
  // In bytes; offsets and lengths of spans are multiples of it. TensorFlow's own pool uses the same value.
  // With 64, a training step of dense layers took 1 to 2 % longer.
  static constexpr std::uint64_t kAlignment = 256;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // the result of Allocate when there is no room

  // begin and end are multiples of kAlignment. The whole range starts free, and occupies no memory.
  SpanAllocator(std::uint64_t begin, std::uint64_t end);

  // Returns the offset of a span of at least `bytes` bytes, or kNone when no free span is that long. `bytes`
  // may be 0.
  std::uint64_t Allocate(std::uint64_t bytes);

  // Frees the span at `offset`, which Allocate has returned.
  void Free(std::uint64_t offset);

  // Returns the length of the span at `offset`, a multiple of kAlignment.
  std::uint64_t LengthOf(std::uint64_t offset) const;

  // Begins a new period. A span is idle if it has been free for the whole of the last period.
  void Tick() { ++period_; }

  // Takes a span that may occupy memory, from a free span where at least `least_bytes` bytes may; with `any`,
  // that need not be idle. It ends at a multiple of `most_bytes` or before, and is not allocated until
  // FreeWithoutMemory, so it should be no large part of the segment. Returns false when there is none.
  bool TakeIdle(std::uint64_t least_bytes, std::uint64_t most_bytes, bool any, std::uint64_t* offset,
                std::uint64_t* length);

  // Frees a span that TakeIdle has returned, after its memory was returned to the system.
  void FreeWithoutMemory(std::uint64_t offset);

  // Returns the sum of the lengths of all spans in use. Those of TakeIdle are not.
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  using Index = std::uint32_t;  // into blocks_

  static constexpr Index kNil = ~Index{0};
  static constexpr int kSubclassBits = 4;  // the blocks of a class differ in length by a sixteenth at most
  static constexpr int kClasses = (64 - kSubclassBits + 1) << kSubclassBits;

  // A span that is free or in use. All blocks together cover the segment.
  struct Block {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    Index before = kNil, after = kNil;   // neighbours in the segment
    Index previous = kNil, next = kNil;  // neighbours in the list of its class, while it is free
    bool free = false;
    // A free block: the range that may occupy memory, empty if none does; and when it was freed.
    std::uint64_t memory_begin = 0, memory_end = 0;
    std::uint64_t period = 0;

    bool has_memory() const { return memory_begin < memory_end; }
  };

  static int ClassOf(std::uint64_t length);

  Index FindFit(std::uint64_t length) const;
  Index FirstInClass(int from) const;
  void Take(Index index, std::uint64_t length);
  Index Split(Index index, std::uint64_t length);
  void Return(std::uint64_t offset, bool has_memory);
  Index NewBlock();
  void Link(Index index);
  void Unlink(Index index);
  void Absorb(Index into, Index index);

  std::vector<Block> blocks_;
  std::vector<Index> unused_blocks_;
  std::array<Index, kClasses> first_;                       // the head of each class's list
  std::array<std::uint64_t, (kClasses + 63) / 64> filled_;  // a bit for each class that has blocks
  std::unordered_map<std::uint64_t, Index> in_use_;         // by offset
  std::uint64_t used_bytes_ = 0;
  std::uint64_t period_ = 1;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_
