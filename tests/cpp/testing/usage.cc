#include "tests/cpp/testing/usage.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace tf_smddp::testing {
namespace {

int Entries(const char* directory) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

constexpr unsigned long kExiting = 4;  // PF_EXITING of the kernel's task flags

}  // namespace

std::vector<std::string> ThreadNames() {
  std::vector<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    const std::size_t begin = stat.find('('), end = stat.rfind(')');
    if (end == std::string::npos) continue;  // it has ended
    std::istringstream fields(stat.substr(end + 1));
    std::string skipped;
    for (int i = 0; i < 6; ++i) fields >> skipped;  // state, four ids, terminal
    unsigned long flags = 0;
    fields >> flags;
    if ((flags & kExiting) == 0) names.push_back(stat.substr(begin + 1, end - begin - 1));
  }
  return names;
}

Usage ReadUsage() {
  Usage usage;
  usage.descriptors = Entries("/proc/self/fd");
  usage.threads = static_cast<int>(ThreadNames().size());
  std::string line;
  for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);) {
    usage.shared_mappings += line.find("/memfd:") != std::string::npos ? 1 : 0;
  }
  for (std::ifstream status("/proc/self/status"); std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) usage.resident_bytes = std::stoll(line.substr(6)) * 1024;
    if (line.rfind("RssAnon:", 0) == 0) usage.private_bytes = std::stoll(line.substr(8)) * 1024;
  }
  return usage;
}

}  // namespace tf_smddp::testing
