// Arena: one rank's shared memory, which all local ranks map.
//
// Place in the stack: above shared_memory.h. TensorFlow's tensors get here through
// kernels/tf/arena_allocator.h, small requests' spans through kernels/engine/dispatcher.h.
#ifndef TF_SMDDP_KERNELS_MEMORY_ARENA_H_
#define TF_SMDDP_KERNELS_MEMORY_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/memory/fork_guard.h"
#include "kernels/memory/shared_memory.h"
#include "kernels/memory/span_allocator.h"

namespace tf_smddp {

// "Not in the arena", where an offset is expected.
inline constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};

// A rank's own arena, made with Create. It takes memory as it is used, and keeps what is freed for the next
// use, until that has not come for a while (Trim). Any thread, all of it.
//
// In a forked child it is private memory, so that parent and child do not write into each other's tensors,
// and nothing new is allocated. It is no snapshot: of a page that the child has not written to, it sees what
// the parent writes.
class Arena : private ForkGuarded {
 public:
  // Makes and maps an arena of `bytes` bytes, a multiple of 256.
  static Status Create(std::uint64_t bytes, MappingCache* mappings, std::shared_ptr<Arena>* arena);

  ~Arena() override;

  // A span for `bytes` bytes aligned to 256, or nullptr when the arena is full, or in a forked child.
  void* Allocate(std::uint64_t bytes);

  // Gives back a span.
  void Free(void* data);

  // How long the span is that begins at `data`, rounded up to 256 bytes.
  std::uint64_t BytesOf(const void* data) const;

  // From Quarantine on, Free keeps spans out of use: after a failure, peers may still read or write them.
  // Release frees them in the end, when every peer has let go. Quarantines add up.
  void Quarantine();
  void Release();

  // Gives memory back to the system that no span has used since the call before the last; to be called every
  // now and then. False when there may be more: each call does a part, since a large one takes its time.
  bool Trim();

  // From Close on nothing new is allocated, and memory goes back to the system as it is freed; until Open, or
  // for good, and then also what is in quarantine.
  void Close(bool for_good);
  void Open();

  // Whether peers may still touch it.
  bool quarantined() const;

  bool Contains(const void* data) const { return OffsetOf(data, 0) != kNotInArena; }

  // Offset of `data` when [data, data + bytes) lies in the arena, else kNotInArena.
  std::uint64_t OffsetOf(const void* data, std::uint64_t bytes) const;

  const std::byte* data() const { return mapping_->data(); }
  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return mapping_->bytes(); }
  std::uint64_t used_bytes() const;
  std::uint64_t peak_bytes() const;            // the most that was ever in use
  std::uint64_t refused() const;               // calls of Allocate for which there was no room
  bool in_child() const { return in_child_; }  // whether this is a forked child

 private:
  Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping);

  void BeforeFork() override { mu_.lock(); }
  void AfterForkInParent() override { mu_.unlock(); }
  void AfterForkInChild() override;

  void FreeWithheld();
  bool GiveBack(bool any, std::uint64_t most_bytes);

  const UniqueFd fd_;
  const std::shared_ptr<Mapping> mapping_;
  std::atomic<bool> in_child_{false};

  mutable std::mutex mu_;
  SpanAllocator spans_;                  // guarded by mu_
  bool closed_ = false;                  // guarded by mu_
  bool over_ = false;                    // closed for good; guarded by mu_
  std::uint64_t peak_bytes_ = 0;         // guarded by mu_
  std::uint64_t refused_ = 0;            // guarded by mu_
  int quarantines_ = 0;                  // guarded by mu_
  std::vector<std::uint64_t> withheld_;  // offsets; guarded by mu_
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
