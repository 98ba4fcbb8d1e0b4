// Launcher process: which ancestor of this process started the ranks of its run.
//
// Place in the stack: above common/. Used by rendezvous.cc, where the environment does not tell two runs
// apart.
#ifndef TF_SMDDP_KERNELS_CONTROL_LAUNCHER_PROCESS_H_
#define TF_SMDDP_KERNELS_CONTROL_LAUNCHER_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_smddp {

struct LauncherProcess {
  int pid = 0;  // 0: not found
  std::uint64_t start_time =
      0;             // in clock ticks since the machine started; tells two processes with one pid apart
  std::string name;  // its command, cut to 15 bytes by the kernel; for messages
};

// The nearest ancestor that was not started with all of `variables` ("NAME=value") in its environment: shells
// and other wrappers between the launcher and the rank were. One whose environment is not readable, as
// Slurm's, which belongs to root, is the launcher too. Not found when the ancestors end before, as in a pid
// namespace that was made for this rank. `proc` is the folder where procfs is mounted.
LauncherProcess FindLauncherProcess(const std::vector<std::string>& variables,
                                    const std::string& proc = "/proc");

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_LAUNCHER_PROCESS_H_
