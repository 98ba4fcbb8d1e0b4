#include "tests/pretend_gpu/other_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>
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

int OpenFileOf(std::int32_t process, std::int32_t fd, std::uint64_t inode) {
  static auto* mu = new std::mutex;
  static auto* opened = new std::map<std::uint64_t, int>;  // by inode
  std::lock_guard<std::mutex> lock(*mu);
  if (const auto found = opened->find(inode); found != opened->end()) return found->second;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return -1;
  if (InodeOf(file) != inode) {  // another process has this number now
    close(file);
    return -1;
  }
  (*opened)[inode] = file;
  return file;
}

}  // namespace pretend_gpu
