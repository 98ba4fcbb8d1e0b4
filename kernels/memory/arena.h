// Arena: one rank's shared memory, which all local ranks map.
//
// Place in the stack: above shared_memory.h. The allocator that puts TensorFlow's tensors here will sit in
// kernels/tf and call Allocate; until then the arena holds the spans of small requests.
#ifndef TF_SMDDP_KERNELS_MEMORY_ARENA_H_
#define TF_SMDDP_KERNELS_MEMORY_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/memory/shared_memory.h"
#include "kernels/memory/span_allocator.h"

namespace tf_smddp {

// "Not in the arena", where an offset is expected.
inline constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};

// A rank's own arena, made with Create.
class Arena {
 public:
  // Makes and maps an arena of `bytes` bytes, a multiple of 64.
  static Status Create(std::uint64_t bytes, MappingCache* mappings, std::unique_ptr<Arena>* arena);

  // A span for `bytes` bytes aligned to 64, or nullptr when the arena is full. Any thread.
  void* Allocate(std::uint64_t bytes);

  // Gives back a span, with the `bytes` it was asked for with. Any thread.
  void Free(void* data, std::uint64_t bytes);

  // From Quarantine on, Free keeps spans out of use: after a failure, peers may still read or write them.
  // Release frees them in the end, when every peer has let go. Quarantines add up. Any thread.
  void Quarantine();
  void Release();

  // Offset of `data` when [data, data + bytes) lies in the arena, else kNotInArena. Any thread.
  std::uint64_t OffsetOf(const void* data, std::uint64_t bytes) const;

  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return mapping_->bytes(); }
  std::uint64_t used_bytes() const { return spans_.used_bytes(); }

 private:
  Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping);

  const UniqueFd fd_;
  const std::shared_ptr<Mapping> mapping_;
  SpanAllocator spans_;

  std::mutex mu_;
  int quarantines_ = 0;                                            // guarded by mu_
  std::vector<std::pair<std::uint64_t, std::uint64_t>> withheld_;  // offset, bytes; guarded by mu_
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
