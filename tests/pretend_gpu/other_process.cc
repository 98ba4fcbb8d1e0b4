#include "tests/pretend_gpu/other_process.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

namespace pretend_gpu {

bool IsAlive(std::int32_t process) {
  // The state follows the name, which is in parentheses and may hold any character.
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t state = line.rfind(')') + 2;
  return state < line.size() && line[state] != 'Z' && line[state] != 'X';
}

std::uint64_t InodeOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace pretend_gpu
