#include "tests/pretend_gpu/nccl/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/other_process.h"

namespace pretend_gpu::nccl {

std::unique_ptr<SharedFile> SharedFile::Make(const char* name, std::size_t bytes) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    End("a file of %zu bytes in shared memory cannot be made: %m", bytes);
  }
  return std::unique_ptr<SharedFile>(new SharedFile(fd));
}

std::unique_ptr<SharedFile> SharedFile::Open(const Place& place) {
  const std::string path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  std::unique_ptr<SharedFile> file(new SharedFile(fd));
  return InodeOf(fd) == place.inode ? std::move(file) : nullptr;
}

SharedFile::~SharedFile() { close(fd_); }

Place SharedFile::place() const { return {getpid(), fd_, InodeOf(fd_)}; }

}  // namespace pretend_gpu::nccl
