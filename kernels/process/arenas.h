// Arenas: the memory of this process that other ranks reach. Frameworks allocate their tensors there.
//
// Place in the stack: above memory/arena.h. global_engine.cc sets the arena that is in use. TensorFlow's
// allocator (kernels/tf/arena_allocator.h) and the C API (smddp.h) allocate from it.
#ifndef TF_SMDDP_KERNELS_PROCESS_ARENAS_H_
#define TF_SMDDP_KERNELS_PROCESS_ARENAS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/memory/arena.h"

namespace tf_smddp {

// All methods but Use: any thread.
class Arenas {
 public:
  // From now on, tensors of more than `small_bytes` bytes come from `arena`, which lives as long as any of
  // them: for ever, to be safe. nullptr: from none; those that there are stay valid. Not from two threads at
  // once.
  void Use(const std::shared_ptr<Arena>& arena, std::size_t small_bytes);

  // The arena for a tensor of `bytes` bytes; nullptr: there is none, or the tensor is so small that copying
  // it costs less than looking for it.
  Arena* ForBytes(std::size_t bytes) const {
    Arena* current = current_.load(std::memory_order_acquire);
    return bytes > small_bytes_.load(std::memory_order_relaxed) ? current : nullptr;
  }

  // The arena in use, or nullptr.
  Arena* Current() const { return current_.load(std::memory_order_acquire); }

  // The arena that `data` lies in, or nullptr.
  Arena* Find(const void* data) const {
    for (const std::shared_ptr<Arena>& arena : *all_.load(std::memory_order_acquire)) {
      if (arena->Contains(data)) return arena.get();
    }
    return nullptr;
  }

 private:
  std::atomic<Arena*> current_{nullptr};
  std::atomic<std::size_t> small_bytes_{0};
  std::atomic<const std::vector<std::shared_ptr<Arena>>*> all_{new std::vector<std::shared_ptr<Arena>>};
};

// Never destroyed: tensors live in daemon threads until the very end.
Arenas& TheArenas();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_PROCESS_ARENAS_H_
