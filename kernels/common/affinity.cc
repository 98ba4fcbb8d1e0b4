#include "kernels/common/affinity.h"

#include <sched.h>
#include <unistd.h>

namespace tf_smddp {

std::string AffinityWarning(const Config& config) {
  // The call fails on machines with more than 1024 cores, whose mask does not fit.
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return "";
  return AffinityWarning(config, CPU_COUNT(&cores), static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string AffinityWarning(const Config& config, int usable_cores, int machine_cores) {
  if (usable_cores != 1 || machine_cores < 2) return "";
  // smddprun does not bind, and a user who started the script without a launcher chose the core.
  if (config.launcher.empty() || config.launcher == kSmddprun) return "";
  return "this rank may use only one of the machine's " + std::to_string(machine_cores) +
         " cores, and TensorFlow is slow there. If " + config.launcher +
         " bound it, ask for no binding: mpirun --bind-to none (Open MPI), mpiexec -bind-to none (MPICH), "
         "I_MPI_PIN=off (Intel MPI), srun --cpu-bind=none or --cpus-per-task=N (Slurm)";
}

}  // namespace tf_smddp
