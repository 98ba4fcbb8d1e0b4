// ArenaAllocator: TensorFlow's CPU memory, from the rank's arena where other ranks are to reach it.
//
// Place in the stack: beside the kernels, above memory/arena.h. TensorFlow takes the registered allocator
// with the highest priority when the process first allocates a tensor, and stays with it. So ours registers
// itself when the library is loaded, and until UseArena leaves everything to the one that would be there
// without us.
//
// Tensors larger than a limit then come from the arena. They are reduced where they lie; smaller ones are
// copied on their way, which costs less than to look for them. When the arena is full, the other allocator
// goes on, and collectives stage such tensors.
//
// It is so on hosts with GPUs, too, but for tensors that a function copies between the CPU and a GPU:
// TensorFlow has these in a pool of pinned memory, which no registered allocator is asked for.
#ifndef TF_SMDDP_KERNELS_TF_ARENA_ALLOCATOR_H_
#define TF_SMDDP_KERNELS_TF_ARENA_ALLOCATOR_H_

#include <cstddef>
#include <memory>

#include "kernels/memory/arena.h"

namespace tf_smddp {

// Whether tensors can come from an arena. Any thread.
enum class ArenaUse {
  kPossible,
  // Something made a tensor before this library was loaded.
  kTooLate,
  // TensorFlow allocates in another way: with TF_CPU_ALLOCATOR_USE_BFC=1.
  kBypassed,
};
ArenaUse CanUseArena();

// From now on, tensors of more than `small_bytes` bytes come from `arena`, which lives as long as any of
// them: for ever, to be safe. nullptr: from none; those that there are stay valid. Not from two threads at
// once.
void UseArena(std::shared_ptr<Arena> arena, std::size_t small_bytes);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_ARENA_ALLOCATOR_H_
