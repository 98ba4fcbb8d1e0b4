// Fork guard: calls objects that own shared memory before and after each fork() of this process.
//
// Place in the stack: the bottom.
#ifndef TF_SMDDP_KERNELS_MEMORY_FORK_GUARD_H_
#define TF_SMDDP_KERNELS_MEMORY_FORK_GUARD_H_

namespace tf_smddp {

// An object that is called at each fork(), between WatchForks and UnwatchForks. vfork() and posix_spawn() do
// not count, because their children execute no code of this library.
class ForkGuarded {
 public:
  // In the parent, before the fork: takes the locks that must be free in the child.
  virtual void BeforeFork() = 0;
  // In the parent, after the fork: releases these locks.
  virtual void AfterForkInParent() = 0;
  // In the child: releases these locks. Only async-signal-safe calls are allowed, because the child has one
  // thread, and locks that other threads held are never released.
  virtual void AfterForkInChild() = 0;

 protected:
  ForkGuarded() = default;
  virtual ~ForkGuarded() = default;
  ForkGuarded(const ForkGuarded&) = delete;
  ForkGuarded& operator=(const ForkGuarded&) = delete;
};

// Any thread, unless it holds a lock that BeforeFork takes.
void WatchForks(ForkGuarded* guarded);
void UnwatchForks(ForkGuarded* guarded);

// Returns a number that is one higher in a child than in its parent. It starts at 0 in the process that first
// calls this function or WatchForks. Unlike getpid(), it makes no system call. Any thread.
int ForkDepth();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_FORK_GUARD_H_
