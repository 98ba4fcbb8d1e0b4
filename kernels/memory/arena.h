// Arena: one rank's shared memory, which all local ranks map.
//
// Place in the stack: above shared_memory.h. The allocator that puts TensorFlow's tensors here will sit in
// kernels/tf and call Allocate; until then the arena holds the staging reserve and the spans of small
// requests.
//
//   [ staging reserve | spans … ]
//
// The reserve belongs to the comm thread alone: ranks can never wait for each other about it.
#ifndef TF_SMDDP_KERNELS_MEMORY_ARENA_H_
#define TF_SMDDP_KERNELS_MEMORY_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/common/status.h"
#include "kernels/memory/shared_memory.h"
#include "kernels/memory/span_allocator.h"

namespace tf_smddp {

// "Not in the arena", where an offset is expected.
inline constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};

// A rank's own arena, made with Create.
class Arena {
 public:
  // Makes and maps an arena of `bytes` bytes whose first `reserve_bytes` are the staging reserve; both are
  // multiples of 64.
  static Status Create(std::uint64_t bytes, std::uint64_t reserve_bytes, MappingCache* mappings,
                       std::unique_ptr<Arena>* arena);

  // A span for `bytes` bytes aligned to 64, or nullptr when the arena is full. Any thread.
  void* Allocate(std::uint64_t bytes);

  // Gives back a span, with the `bytes` it was asked for with. Any thread.
  void Free(void* data, std::uint64_t bytes);

  // After Quarantine, Free keeps spans out of use: peers may still read or write them after an abort.
  // Any thread.
  void Quarantine() { quarantined_.store(true); }

  // Offset of `data` when [data, data + bytes) lies in the arena, else kNotInArena. Any thread.
  std::uint64_t OffsetOf(const void* data, std::uint64_t bytes) const;

  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return mapping_->bytes(); }
  std::uint64_t used_bytes() const { return spans_.used_bytes(); }

 private:
  Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping, std::uint64_t reserve_bytes);

  const UniqueFd fd_;
  const std::shared_ptr<Mapping> mapping_;
  SpanAllocator spans_;
  std::atomic<bool> quarantined_{false};
};

// A rank's arena as every local rank sees it, its own too.
class ArenaView {
 public:
  explicit ArenaView(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  // Address of [offset, offset + bytes), or nullptr when that is not wholly inside: offsets come out of
  // shared memory and are not trusted.
  std::byte* Resolve(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t limit = mapping_->bytes();
    if (offset > limit || bytes > limit - offset) return nullptr;
    return mapping_->data() + offset;
  }

 private:
  std::shared_ptr<Mapping> mapping_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_ARENA_H_
