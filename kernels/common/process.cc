#include "kernels/common/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "kernels/common/unique_fd.h"

namespace tf_smddp {
namespace {

// The numbers of the fields in proc(5); the first one after the process's name is 3.
constexpr int kState = 3, kParent = 4, kUserTime = 14, kSystemTime = 15, kStartTime = 22, kExitCode = 52;

}  // namespace

bool ReadProcessStat(pid_t pid, ProcessStat* stat) {
  const UniqueFd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  char text[2048];
  const ssize_t bytes = ::read(file.get(), text, sizeof text - 1);
  if (bytes <= 0) return false;
  text[bytes] = '\0';
  // "pid (name) state …": the name may contain anything, so the fields begin after the last parenthesis.
  const char* behind_name = std::strrchr(text, ')');
  if (behind_name == nullptr) return false;
  std::istringstream fields(behind_name + 1);
  std::string field;
  stat->cpu_ticks = 0;
  for (int number = kState; number <= kExitCode; ++number) {
    if (!(fields >> field)) return false;
    if (number == kState) stat->state = field[0];
    if (number == kParent) stat->parent = std::atoi(field.c_str());
    if (number == kUserTime || number == kSystemTime) {
      stat->cpu_ticks += std::strtoull(field.c_str(), nullptr, 10);
    }
    if (number == kStartTime) stat->start_ticks = std::strtoull(field.c_str(), nullptr, 10);
    if (number == kExitCode) stat->wait_status = std::atoi(field.c_str());
  }
  return true;
}

bool ProcessRuns(pid_t pid, std::uint64_t start_ticks) {
  ProcessStat stat;
  return ReadProcessStat(pid, &stat) && stat.start_ticks == start_ticks && stat.state != 'Z' &&
         stat.state != 'X';
}

std::string HostName() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace tf_smddp
