#include "kernels/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tf_smddp {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string Mebibytes(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

std::string ErrnoText() { return std::strerror(errno); }

}  // namespace

Mapping::~Mapping() { ::munmap(data_, bytes_); }

Status CreateSharedMemory(const char* name, std::size_t bytes, UniqueFd* fd) {
  rlimit limit;
  // Growing past RLIMIT_FSIZE would raise SIGXFSZ, which ends the process: look first.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    return Internal(std::string("shared memory '") + name + "' of " + Mebibytes(bytes) +
                    " is above this process's file size limit of " + Mebibytes(limit.rlim_cur) +
                    "; raise it (ulimit -f unlimited)");
  }
  UniqueFd created(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!created.valid()) {
    return Internal(std::string("memfd_create for '") + name + "' failed: " + ErrnoText());
  }
  if (::ftruncate(created.get(), static_cast<off_t>(bytes)) != 0) {
    return Internal(std::string("shared memory '") + name + "' of " + Mebibytes(bytes) +
                    " could not be made: " + ErrnoText());
  }
  if (::fcntl(created.get(), F_ADD_SEALS, kSeals) != 0) {
    return Internal(std::string("shared memory '") + name + "' could not be sealed: " + ErrnoText());
  }
  *fd = std::move(created);
  return {};
}

Status MappingCache::Map(int fd, std::size_t bytes, std::shared_ptr<Mapping>* mapping) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    return Internal("a shared memory descriptor is not valid: " + ErrnoText());
  }
  if (static_cast<std::size_t>(info.st_size) != bytes) {
    return Internal("a shared memory segment has " + std::to_string(info.st_size) + " bytes instead of " +
                    std::to_string(bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Internal("a shared memory descriptor is not a sealed memfd");
  }
  const std::pair<unsigned long, unsigned long> key(info.st_dev, info.st_ino);
  std::lock_guard<std::mutex> lock(mu_);
  *mapping = by_inode_[key].lock();
  if (*mapping != nullptr) return {};
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return Internal("mapping " + Mebibytes(bytes) + " of shared memory failed: " + ErrnoText() +
                    "; if the address space is limited (ulimit -v), raise the limit or lower "
                    "SMDDP_ARENA_BYTES");
  }
  *mapping = std::make_shared<Mapping>(static_cast<std::byte*>(data), bytes);
  by_inode_[key] = *mapping;
  return {};
}

}  // namespace tf_smddp
