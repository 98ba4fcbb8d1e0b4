// Facts about another process, from /proc, and about the host.
//
// Place in the stack: the bottom. Process numbers are used again, so only a number and a start time together
// identify a process.
#ifndef TF_SMDDP_KERNELS_COMMON_PROCESS_H_
#define TF_SMDDP_KERNELS_COMMON_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace tf_smddp {

// Some fields of /proc/<pid>/stat; proc(5) has their meaning.
struct ProcessStat {
  char state = 0;  // 'Z' and 'X' mean that it has ended
  pid_t parent = 0;
  std::uint64_t cpu_ticks = 0;    // used by its threads, in user space and in the kernel
  std::uint64_t start_ticks = 0;  // when it started, in clock ticks since the host did
  int wait_status = 0;            // as from waitpid(), once it has ended
};

// Reads the fields of process `pid`. Returns false when there is no such process, or /proc does not show it:
// /proc may not be mounted, belong to another pid namespace, or hide processes (hidepid). Any thread.
bool ReadProcessStat(pid_t pid, ProcessStat* stat);

// Tells whether /proc shows the process `pid` that started at `start_ticks`, and it has not ended. Any
// thread.
bool ProcessRuns(pid_t pid, std::uint64_t start_ticks);

// Returns the name of this process's host. Any thread.
std::string HostName();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_PROCESS_H_
