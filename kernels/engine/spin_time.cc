#include "kernels/engine/spin_time.h"

#include <sched.h>
#include <unistd.h>

#include <string>

namespace tf_smddp {

Clock::duration SpinTime(const Job& job, int cores_needed, Clock::duration time) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return Clock::duration::zero();
  int usable = CPU_COUNT(&cores);
  // Launchers other than smddprun bind each rank to cores of its own.
  const std::string& launcher = job.config().launcher;
  if (!launcher.empty() && launcher != kSmddprun && usable < ::sysconf(_SC_NPROCESSORS_ONLN)) {
    usable *= job.local_size();
  }
  return usable >= cores_needed ? time : Clock::duration::zero();
}

}  // namespace tf_smddp
