#include "kernels/engine/watch/exit_cause.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <cstdint>
#include <thread>

#include "kernels/common/clock.h"
#include "kernels/common/process.h"

// glibc has it from version 2.32 on. With an older one, texts have the number of a signal, and not its name.
#pragma weak sigabbrev_np

namespace tf_smddp {
namespace {

// The first version of the kernel's struct pidfd_info (linux/pidfd.h, newer than Debian 12's headers).
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroupid;
  std::uint32_t ids[11];
  std::int32_t exit_code;
};
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr std::uint64_t kPidfdInfoExit = 1 << 3;

bool StatusOfZombie(const LocalPeer& peer, int* wait_status) {
  ProcessStat stat;
  if (!ReadProcessStat(peer.pid, &stat) || (stat.state != 'Z' && stat.state != 'X')) return false;
  if (!peer.pidfd.valid() && stat.start_ticks != peer.start_ticks) return false;  // the number is used again
  *wait_status = stat.wait_status;
  return true;
}

bool StatusBehindPidfd(int pidfd, int* wait_status) {
  if (pidfd < 0) return false;
  PidfdInfo info = {};
  info.mask = kPidfdInfoExit;
  if (::ioctl(pidfd, kPidfdGetInfo, &info) != 0 || (info.mask & kPidfdInfoExit) == 0) return false;
  *wait_status = info.exit_code;
  return true;
}

}  // namespace

std::string DescribeWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = ::sigabbrev_np == nullptr ? nullptr : ::sigabbrev_np(signal);
    std::string text = "was killed by signal " + std::to_string(signal);
    if (name != nullptr) text += std::string(" (SIG") + name + ")";
    if (signal == SIGKILL) text += ", as the kernel does when memory runs out, or a user";
    return text;
  }
  return "exited with code " + std::to_string(WEXITSTATUS(wait_status)) + " without calling shutdown()";
}

std::string DescribeExit(const LocalPeer& peer, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  int wait_status = 0;
  do {
    if (StatusOfZombie(peer, &wait_status) || StatusBehindPidfd(peer.pidfd.get(), &wait_status)) {
      return DescribeWaitStatus(wait_status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (Clock::now() < deadline);
  return "died (its parent has taken its exit status; see that rank's own output)";
}

}  // namespace tf_smddp
