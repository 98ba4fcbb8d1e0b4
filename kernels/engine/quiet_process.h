// QuietProcess: tells whether no thread of this process can go on before the engine wakes one.
//
// Place in the stack: below deadlock_watch.h, which calls it. It reads /proc/self/task.
//
// Note [Quiet]: a process is quiet when each of its threads is in a futex wait that has no time limit and is
// private, so that only another thread of the process can end it. The engine's own threads are not asked,
// except for these: a progress thread must sleep at its doorbell, or it may be in a callback; and the thread
// that calls TensorFlow back must wait as all others do. A thread that sleeps, reads, polls, or waits with a
// time limit may go on by itself, and so may a process with a timer, whose signal runs a handler.
//
// One look reads one thread after another, while a thread that was read may be woken by one that was not. So
// the process counts as quiet only when two looks find the same threads, all waiting, and no thread has had a
// context switch in between: then all of them waited at every moment between the two looks.
#ifndef TF_SMDDP_KERNELS_ENGINE_QUIET_PROCESS_H_
#define TF_SMDDP_KERNELS_ENGINE_QUIET_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace tf_smddp {

// Whether the line of /proc/<pid>/task/<tid>/syscall says that the thread is in a futex wait: one that is
// private and has no time limit, or (`at_doorbell`) one at a futex in shared memory.
bool IsInFutexWait(const char* line, bool at_doorbell);

class QuietProcess {
 public:
  // Forgets the looks before.
  void Reset();

  // Whether the next look has one before it.
  bool has_looked() const { return !waiting_.empty(); }

  // Looks at all threads. Returns whether the process has been quiet since the look before this one, and the
  // progress threads have run since the first of these looks, so that they have seen all there was to do.
  // False when /proc does not show the threads. After false, the next look is a first one.
  bool Look();

 private:
  bool Read();

  std::map<pid_t, std::uint64_t> waiting_,
      progress_;                                   // context switches by thread, as the last look saw them
  std::map<pid_t, std::uint64_t> first_progress_;  // and as the first one did
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_QUIET_PROCESS_H_
