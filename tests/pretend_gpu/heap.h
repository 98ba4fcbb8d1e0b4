// The memory of one device of this process, from which the program allocates.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_HEAP_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "tests/pretend_gpu/memory.h"

namespace pretend_gpu {

// Allocations are poisoned when they come and when they go, and have guard bytes behind them. All methods:
// any thread.
class Heap {
 public:
  Heap(int device, std::size_t bytes);

  // Returns the address of a new allocation, or nullptr if there is no room.
  void* Allocate(std::size_t bytes);

  // Frees the allocation that begins at `address`. Ends the process if there is none, if a queued task uses
  // it, or if its guard was written.
  void Free(void* address);

  // Ends the process if the guard of any allocation was written.
  void CheckGuards();

  std::size_t free_bytes();
  Space& space() { return space_; }

 private:
  struct Block {
    std::size_t bytes;  // with the guard
    std::shared_ptr<Allocation> allocation;
  };

  void CheckGuard(const Block& block);

  Space space_;
  std::mutex mu_;
  std::map<std::uintptr_t, Block> blocks_;       // guarded by mu_
  std::map<std::uintptr_t, std::size_t> holes_;  // guarded by mu_
  std::size_t used_ = 0;                         // guarded by mu_
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_HEAP_H_
