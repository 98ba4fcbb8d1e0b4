// SpanAllocator: which parts of a segment are in use. Pure bookkeeping; it never touches the memory.
#ifndef TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_
#define TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tf_smddp {

// Hands out ranges ("spans") of [begin, end). Free spans are kept by size class, and joined with their
// neighbours as soon as they are freed (two-level segregated fit: Masmano et al., "TLSF: a new dynamic memory
// allocator for real-time systems", ECRTS 2004), so a call costs the same however many there are. Among those
// that fit about as well, the one that was freed last is taken: its memory is the warmest.
//
// It also knows which free spans may still have memory behind them, and since when (Tick, TakeIdle), so that
// it can be given back to the system.
//
// Not for use from several threads at once: arena.h has the lock.
class SpanAllocator {
 public:
  // In bytes; of offsets and of reserved lengths. As TensorFlow's own pool has it: with 64, a training step
  // of dense layers took 1 to 2 % longer.
  static constexpr std::uint64_t kAlignment = 256;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // "no room"

  // begin and end are multiples of kAlignment. All of it is free, and has no memory behind it.
  SpanAllocator(std::uint64_t begin, std::uint64_t end);

  // Returns the offset of a span of at least `bytes` bytes, or kNone when there is none that long. `bytes`
  // may be 0.
  std::uint64_t Allocate(std::uint64_t bytes);

  // Gives back what Allocate returned.
  void Free(std::uint64_t offset);

  // Bytes of the span that Allocate returned, rounded up to kAlignment.
  std::uint64_t LengthOf(std::uint64_t offset) const;

  // A new period begins: idle is what was free in the whole of the last one.
  void Tick() { ++period_; }

  // Takes the next free span of at least `least_bytes` that is idle (or, with `any`, was freed ever) and may
  // have memory behind it. False when there is none. It is in use until FreeWithoutMemory.
  bool TakeIdle(std::uint64_t least_bytes, bool any, std::uint64_t* offset, std::uint64_t* length);

  // Gives it back, with no memory behind it now.
  void FreeWithoutMemory(std::uint64_t offset);

  // Bytes that are handed out, rounded up to kAlignment each.
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  using Index = std::uint32_t;  // into blocks_

  static constexpr Index kNil = ~Index{0};
  static constexpr int kSubclassBits = 4;  // a class's blocks differ in length by a sixteenth at most
  static constexpr int kClasses = (64 - kSubclassBits + 1) << kSubclassBits;

  // A span, free or in use. All blocks together cover the segment.
  struct Block {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    Index before = kNil, after = kNil;   // neighbours in the segment
    Index previous = kNil, next = kNil;  // in the list of its class, when free
    bool free = false;
    bool has_memory = false;   // may have; of a free block
    std::uint64_t period = 0;  // when it was freed
  };

  static int ClassOf(std::uint64_t length);

  Index FindFit(std::uint64_t length) const;
  Index FirstInClass(int from) const;
  void Take(Index index, std::uint64_t length);
  void Return(std::uint64_t offset, bool has_memory);
  Index NewBlock();
  void Link(Index index);
  void Unlink(Index index);
  void Absorb(Index into, Index index);

  std::vector<Block> blocks_;
  std::vector<Index> unused_blocks_;
  std::array<Index, kClasses> first_;                       // of each class's list
  std::array<std::uint64_t, (kClasses + 63) / 64> filled_;  // a bit for each class that has blocks
  std::unordered_map<std::uint64_t, Index> in_use_;         // by offset
  std::uint64_t used_bytes_ = 0;
  std::uint64_t period_ = 1;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_SPAN_ALLOCATOR_H_
