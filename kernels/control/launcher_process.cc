#include "kernels/control/launcher_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "kernels/common/unique_fd.h"

namespace tf_smddp {
namespace {

bool ReadFile(const std::string& path, std::string* text) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  text->clear();
  char buffer[4096];
  for (;;) {
    const ssize_t bytes = ::read(file.get(), buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return false;
    if (bytes == 0) return true;
    text->append(buffer, static_cast<std::size_t>(bytes));
  }
}

// Some fields of /proc/<pid>/stat.
struct Stat {
  std::string name;
  int parent = 0;
  std::uint64_t start_time = 0;
};

bool ReadStat(const std::string& folder, Stat* stat) {
  std::string text;
  if (!ReadFile(folder + "/stat", &text)) return false;
  // "1234 (a name) S 1 …": the name may have spaces and parentheses of its own.
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  stat->name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {  // numbered as in proc(5)
    if (number == 4) stat->parent = std::atoi(field.c_str());
    if (number == 22) {
      stat->start_time = std::strtoull(field.c_str(), nullptr, 10);
      return true;
    }
  }
  return false;
}

bool Has(const std::string& environment, const std::string& variable) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = environment.find('\0', at);
    const std::size_t length = (end == std::string::npos ? environment.size() : end) - at;
    if (environment.compare(at, length, variable) == 0) return true;
    at += length + 1;
  }
  return false;
}

bool StartedWith(const std::string& folder, const std::vector<std::string>& variables) {
  std::string environment;
  if (!ReadFile(folder + "/environ", &environment)) return false;
  for (const std::string& variable : variables) {
    if (!Has(environment, variable)) return false;
  }
  return true;
}

}  // namespace

LauncherProcess FindLauncherProcess(const std::vector<std::string>& variables, const std::string& proc) {
  Stat stat;
  if (!ReadStat(proc + "/self", &stat)) return {};
  while (stat.parent > 0) {
    const int pid = stat.parent;
    const std::string folder = proc + "/" + std::to_string(pid);
    if (!ReadStat(folder, &stat)) return {};
    if (!StartedWith(folder, variables)) return {pid, stat.start_time, stat.name};
  }
  return {};
}

}  // namespace tf_smddp
