#include "kernels/engine/quiet_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "kernels/common/unique_fd.h"

namespace tf_smddp {
namespace {

// Reads the begin of a small file. Returns false if it cannot be read.
bool ReadFile(const std::string& path, char* text, std::size_t bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  const ssize_t read = ::read(file.get(), text, bytes - 1);
  if (read < 0) return false;
  text[read] = '\0';
  return true;
}

// The sum of both kinds of context switches in /proc/<pid>/task/<tid>/status.
bool ReadSwitches(const std::string& folder, std::uint64_t* switches) {
  char text[4096];
  if (!ReadFile(folder + "status", text, sizeof text)) return false;
  const char* voluntary = std::strstr(text, "\nvoluntary_ctxt_switches:");
  const char* forced = std::strstr(text, "\nnonvoluntary_ctxt_switches:");
  if (voluntary == nullptr || forced == nullptr) return false;
  *switches = std::strtoull(std::strchr(voluntary, ':') + 1, nullptr, 10) +
              std::strtoull(std::strchr(forced, ':') + 1, nullptr, 10);
  return true;
}

// A signal of a timer may run a handler that submits a request.
bool HasTimer() {
  itimerval timer = {};
  if (::getitimer(ITIMER_REAL, &timer) != 0) return true;
  if (timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0) return true;
  char text[64];  // where the kernel does not show them, there is no such file
  return ReadFile("/proc/self/timers", text, sizeof text) && text[0] != '\0';
}

bool IsName(const char* text, const char* name) {
  const std::size_t length = std::strlen(name);
  return std::strncmp(text, name, length) == 0 && (text[length] == '\n' || text[length] == '\0');
}

}  // namespace

bool IsInFutexWait(const char* line, bool at_doorbell) {
  long number = 0;
  unsigned long long address = 0, operation = 0, value = 0, timeout = 0;
  // A thread that runs has the line "running".
  if (std::sscanf(line, "%ld %llx %llx %llx %llx", &number, &address, &operation, &value, &timeout) != 5) {
    return false;
  }
  if (number != SYS_futex) return false;
  const auto flags = static_cast<unsigned int>(operation);
  const unsigned int command = flags & ~static_cast<unsigned int>(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
  if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) return false;
  const bool is_private = (flags & FUTEX_PRIVATE_FLAG) != 0;
  return at_doorbell ? !is_private : is_private && timeout == 0;
}

void QuietProcess::Reset() {
  waiting_.clear();
  progress_.clear();
  first_progress_.clear();
}

bool QuietProcess::Look() {
  const std::map<pid_t, std::uint64_t> before = waiting_;
  if (HasTimer() || !Read()) {
    Reset();
    return false;
  }
  if (before.empty()) {
    first_progress_ = progress_;
    return false;
  }
  if (waiting_ != before || progress_.size() != first_progress_.size()) {
    first_progress_ = progress_;  // this look is a first one
    return false;
  }
  for (const auto& [thread, switches] : first_progress_) {
    const auto now = progress_.find(thread);
    if (now == progress_.end() || now->second == switches) return false;
  }
  return true;
}

// Returns false as soon as a thread is found that may go on by itself.
bool QuietProcess::Read() {
  waiting_.clear();
  progress_.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"), &::closedir);
  if (threads == nullptr) return false;
  while (const dirent* entry = ::readdir(threads.get())) {
    if (entry->d_name[0] == '.') continue;
    const std::string folder = std::string("/proc/self/task/") + entry->d_name + "/";
    char name[32], line[256];
    if (!ReadFile(folder + "comm", name, sizeof name)) return false;
    // They only look, and act when another rank dies or a user interrupts the job.
    if (IsName(name, "smddp-stall") || IsName(name, "smddp-watch") || IsName(name, "smddp-interrupt")) {
      continue;
    }
    const bool progress = IsName(name, "smddp-progress");
    std::uint64_t switches = 0;
    if (!ReadFile(folder + "syscall", line, sizeof line) || !IsInFutexWait(line, progress)) return false;
    if (!ReadSwitches(folder, &switches)) return false;
    (progress ? progress_ : waiting_)[static_cast<pid_t>(std::atoi(entry->d_name))] = switches;
  }
  return !waiting_.empty();
}

}  // namespace tf_smddp
