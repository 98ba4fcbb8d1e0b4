// What the kernel tells about another process, by its number.
//
// Place in the stack: the bottom. A number alone does not name a process, since numbers are used again: with
// the start time it does.
#ifndef TF_SMDDP_KERNELS_COMMON_PROCESS_H_
#define TF_SMDDP_KERNELS_COMMON_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

namespace tf_smddp {

// Some fields of /proc/<pid>/stat; proc(5) has their meaning.
struct ProcessStat {
  char state = 0;  // 'Z' and 'X': it has ended
  pid_t parent = 0;
  std::uint64_t cpu_ticks = 0;    // that its threads have used, in user space and in the kernel
  std::uint64_t start_ticks = 0;  // when it started, in clock ticks since the host did
  int wait_status = 0;            // once it has ended: as waitpid() gives it
};

// Reads the fields of process `pid`. False when there is none of that number, or /proc does not show it: it
// is not mounted, belongs to another pid namespace, or hides processes (hidepid). Any thread.
bool ReadProcessStat(pid_t pid, ProcessStat* stat);

// Whether /proc shows the process `pid` that started at `start_ticks`, and it has not ended. Any thread.
bool ProcessRuns(pid_t pid, std::uint64_t start_ticks);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_PROCESS_H_
