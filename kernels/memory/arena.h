// Arena: one rank's shared memory, which all local ranks map.
//
// Place in the stack: above shared_memory.h. kernels/tf/arena_allocator.h allocates TensorFlow's tensors
// here, and kernels/engine copies small tensors from private memory to here.
#ifndef TF_SMDDP_KERNELS_MEMORY_ARENA_H_
#define TF_SMDDP_KERNELS_MEMORY_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/memory/fork_guard.h"
#include "kernels/memory/shared_memory.h"
#include "kernels/memory/span_allocator.h"

namespace tf_smddp {

// The offset of memory that is not in the arena.
inline constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};

// A rank's own arena. Its pages take memory when they are first used. Freed spans keep their memory for the
// next use, until Trim returns it to the system. All methods may be called by any thread.
//
// In a forked child the arena becomes private memory at the same addresses, so that parent and child do not
// write into each other's tensors, and Allocate fails. This is no snapshot: as long as the child has not
// written to a page, it sees what the parent writes there.
class Arena : private ForkGuarded {
 public:
  // Creates and maps an arena of `bytes` bytes, a multiple of 256.
  static Status Create(std::uint64_t bytes, MappingCache* mappings, std::shared_ptr<Arena>* arena);

  ~Arena() override;

  // Returns a span of at least `bytes` bytes, aligned to 256 bytes, or nullptr when the arena is full or
  // closed, or in a forked child.
  void* Allocate(std::uint64_t bytes);

  // The error where Allocate found no room for `what`. It says what to do.
  Status FullError(const std::string& what) const;

  // Frees the span that begins at `data`.
  void Free(void* data);

  // Returns the length of the span that begins at `data`, a multiple of 256 bytes.
  std::uint64_t BytesOf(const void* data) const;

  // Between Quarantine and Release, freed spans are not reused, because peers may still read or write them
  // after a failure. Release is called when no peer uses them any more. Quarantines nest: the last Release
  // ends them.
  void Quarantine();
  void Release();

  // Returns memory to the system that no span has used since the call before the last. To be called at
  // regular intervals. One call returns a limited amount, since it takes time; it returns false when there
  // may be more.
  bool Trim();

  // Close makes Allocate fail, and returns memory to the system as soon as it is free. Open ends that, unless
  // `for_good` was set; then the memory of spans in quarantine is returned, too.
  void Close(bool for_good);
  void Open();

  // Returns whether the arena is in quarantine.
  bool quarantined() const;

  bool Contains(const void* data) const { return OffsetOf(data, 0) != kNotInArena; }

  // Returns the offset of `data` if [data, data + bytes) lies in the arena, else kNotInArena.
  std::uint64_t OffsetOf(const void* data, std::uint64_t bytes) const;

  const std::byte* data() const { return mapping_->data(); }
  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return mapping_->bytes(); }
  std::uint64_t used_bytes() const;
  std::uint64_t peak_bytes() const;            // the largest number of bytes ever in use
  std::uint64_t refused() const;               // the calls of Allocate that failed because the arena was full
  bool in_child() const { return in_child_; }  // whether this process is a forked child

 private:
  Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping);

  void BeforeFork() override { mu_.lock(); }
  void AfterForkInParent() override { mu_.unlock(); }
  void AfterForkInChild() override;

  void FreeQuarantined();
  bool ReturnMemory(bool any, std::uint64_t most_bytes);

  const UniqueFd fd_;
  const std::shared_ptr<Mapping> mapping_;
  std::atomic<bool> in_child_{false};

  mutable std::mutex mu_;
  SpanAllocator spans_;                     // guarded by mu_
  bool closed_ = false;                     // guarded by mu_
  bool closed_for_good_ = false;            // guarded by mu_
  std::uint64_t peak_bytes_ = 0;            // guarded by mu_
  std::uint64_t refused_ = 0;               // guarded by mu_
  int quarantines_ = 0;                     // guarded by mu_
  std::vector<std::uint64_t> quarantined_;  // offsets of spans; guarded by mu_
};

// A mapping of one rank's arena, through which this rank reads and writes the other's tensors.
class ArenaView {
 public:
  explicit ArenaView(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  // Returns the address of `offset`, or nullptr unless [offset, offset + bytes) lies in the arena. Offsets
  // come from shared memory and are not trusted.
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
