#include "kernels/engine/exit_cause.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "kernels/common/unique_fd.h"

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

bool StatusOfZombie(pid_t pid, int* wait_status) {
  const UniqueFd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  char text[2048];
  const ssize_t bytes = ::read(file.get(), text, sizeof text - 1);
  if (bytes <= 0) return false;
  text[bytes] = '\0';
  // "pid (comm) state …": comm may hold anything, so start behind its last parenthesis.
  const char* behind_comm = ::strrchr(text, ')');
  if (behind_comm == nullptr) return false;
  std::istringstream fields(behind_comm + 1);
  std::string state, field;
  fields >> state;
  if (state != "Z" && state != "X") return false;
  for (int number = 4; number <= 52; ++number) fields >> field;  // exit_code is field 52 of proc(5)
  if (!fields) return false;
  *wait_status = std::atoi(field.c_str());
  return true;
}

bool StatusBehindPidfd(int pidfd, int* wait_status) {
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
    const char* name = ::sigabbrev_np(signal);
    std::string text = "was killed by signal " + std::to_string(signal);
    if (name != nullptr) text += std::string(" (SIG") + name + ")";
    if (signal == SIGKILL) text += ", as the kernel does when memory runs out, or a user";
    return text;
  }
  return "exited with code " + std::to_string(WEXITSTATUS(wait_status)) + " without calling shutdown()";
}

std::string DescribeExit(pid_t pid, int pidfd, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  int wait_status = 0;
  do {
    if (StatusOfZombie(pid, &wait_status) || StatusBehindPidfd(pidfd, &wait_status)) {
      return DescribeWaitStatus(wait_status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < deadline);
  return "died (its parent has taken its exit status; see that rank's own output)";
}

}  // namespace tf_smddp
