// LauncherProcess: the ancestor of this process that started the ranks of its run.
//
// Place in the stack: above common/. rendezvous.cc uses it where the environment is the same for two runs.
#ifndef TF_SMDDP_KERNELS_CONTROL_LAUNCHER_PROCESS_H_
#define TF_SMDDP_KERNELS_CONTROL_LAUNCHER_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_smddp {

struct LauncherProcess {
  int pid = 0;  // 0 if the process was not found
  // In clock ticks since the machine started. It distinguishes two processes that have had the same pid.
  std::uint64_t start_time = 0;
  std::string name;  // the command, cut to 15 bytes by the kernel; for messages
};

// Returns the nearest ancestor that was not started with all of `variables` ("NAME=value") in its
// environment. The launcher sets these variables, so shells and other wrappers between it and the rank have
// them. An ancestor whose environment is not readable, such as Slurm's, which belongs to root, counts as the
// launcher. Returns pid 0 if there is no such ancestor in this pid namespace. `proc` is the directory where
// procfs is mounted.
LauncherProcess FindLauncherProcess(const std::vector<std::string>& variables,
                                    const std::string& proc = "/proc");

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_LAUNCHER_PROCESS_H_
