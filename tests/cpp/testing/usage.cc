#include "tests/cpp/testing/usage.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tf_smddp::testing {
namespace {

int Entries(const char* directory) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

}  // namespace

Usage ReadUsage() {
  Usage usage;
  usage.descriptors = Entries("/proc/self/fd");
  usage.threads = Entries("/proc/self/task");
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
