// What a process that forks must do about memory it shares with others.
#ifndef TF_SMDDP_KERNELS_MEMORY_FORK_GUARD_H_
#define TF_SMDDP_KERNELS_MEMORY_FORK_GUARD_H_

namespace tf_smddp {

// Something that is told of each fork() of this process, from Watch until Unwatch. (Not of vfork() and
// posix_spawn(), whose children run nothing of ours.)
class ForkGuarded {
 public:
  // In the parent, before: takes the locks that the child is to find free. Then, in either process, lets go.
  virtual void BeforeFork() = 0;
  virtual void AfterForkInParent() = 0;
  // Only async-signal-safe calls are allowed: the child has one thread, and the other threads' locks are
  // taken for ever.
  virtual void AfterForkInChild() = 0;

 protected:
  ForkGuarded() = default;
  virtual ~ForkGuarded() = default;
  ForkGuarded(const ForkGuarded&) = delete;
  ForkGuarded& operator=(const ForkGuarded&) = delete;
};

// Any thread, but not with a lock held that BeforeFork takes.
void WatchForks(ForkGuarded* guarded);
void UnwatchForks(ForkGuarded* guarded);

// How many forks lie between the process in which this was first called, or anything watched, and this one: a
// child sees one more than its parent. Costs no system call, as getpid() does. Any thread.
int ForkDepth();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_FORK_GUARD_H_
