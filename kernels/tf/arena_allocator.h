// ArenaAllocator: TensorFlow's CPU memory, from the rank's arena where other ranks are to reach it.
//
// Place in the stack: beside the kernels, above process/arenas.h. TensorFlow takes the registered allocator
// with the highest priority when the process first allocates a tensor, and stays with it. So ours registers
// itself when the library is loaded. Until this process has an arena, it leaves everything to the one that
// would be there without us.
//
// Tensors larger than a limit then come from the arena. They are reduced where they lie; smaller ones are
// copied on their way, which costs less than to look for them. When the arena is full, the other allocator
// goes on, and collectives stage such tensors.
//
// It is so on hosts with GPUs, too, but for tensors that a function copies between the CPU and a GPU:
// TensorFlow has these in a pool of pinned memory, which no registered allocator is asked for.
#ifndef TF_SMDDP_KERNELS_TF_ARENA_ALLOCATOR_H_
#define TF_SMDDP_KERNELS_TF_ARENA_ALLOCATOR_H_

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

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_ARENA_ALLOCATOR_H_
