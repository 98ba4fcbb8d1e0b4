#include "kernels/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/common/system_call.h"
#include "kernels/memory/memory_limits.h"

namespace tf_smddp {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// For Linux 6.3 and later, which can be configured to refuse a memfd without this flag (vm.memfd_noexec=2).
constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL

std::string ErrnoText() { return std::strerror(errno); }

// There is no fallback to /dev/shm: a peer could truncate such a file, and a full /dev/shm kills the process
// that touches a new page.
Status CreateMemfd(const char* name, UniqueFd* fd) {
  *fd = UniqueFd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal));
  if (!fd->valid() && errno == EINVAL) *fd = UniqueFd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd->valid()) return {};
  return Internal("cannot create shared memory: " + CallFailed("memfd_create", errno));
}

// Writes zeros to those pages of [begin, end) that have memory.
bool ZeroData(int fd, off_t begin, off_t end) {
  static constexpr char kZeros[64 << 10] = {};
  while (begin < end) {
    begin = ::lseek(fd, begin, SEEK_DATA);
    if (begin < 0) return errno == ENXIO;  // no more data
    const off_t found = ::lseek(fd, begin, SEEK_HOLE);
    if (found < 0) return false;
    const off_t hole = std::min(found, end);
    while (begin < hole) {
      const std::size_t bytes = std::min(sizeof kZeros, static_cast<std::size_t>(hole - begin));
      const ssize_t written = ::pwrite(fd, kZeros, bytes, begin);
      if (written <= 0) return false;
      begin += written;
    }
  }
  return true;
}

}  // namespace

Mapping::~Mapping() { ::munmap(data_, bytes_); }

Status CreateSharedMemory(const char* name, std::size_t bytes, UniqueFd* fd) {
  rlimit limit;
  // Check first, because growing past RLIMIT_FSIZE raises SIGXFSZ, which kills the process.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    return Internal(std::string("shared memory '") + name + "' of " + InMebibytes(bytes) +
                    " is above this process's file size limit of " + InMebibytes(limit.rlim_cur) +
                    "; raise it (ulimit -f unlimited)");
  }
  UniqueFd created;
  Status status = CreateMemfd(name, &created);
  if (!status.ok()) return status;
  if (::ftruncate(created.get(), static_cast<off_t>(bytes)) != 0) {
    return Internal(std::string("shared memory '") + name + "' of " + InMebibytes(bytes) +
                    " could not be created: " + ErrnoText());
  }
  if (::fcntl(created.get(), F_ADD_SEALS, kSeals) != 0) {
    return Internal(std::string("shared memory '") + name + "' could not be sealed: " + ErrnoText());
  }
  *fd = std::move(created);
  return {};
}

Status PunchHole(int fd, std::size_t offset, std::size_t bytes) {
  const auto begin = static_cast<off_t>(offset);
  const auto length = static_cast<off_t>(bytes);
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, length) == 0) return {};
  if (CallIsRefused(errno) && ZeroData(fd, begin, begin + length)) return {};
  return Internal("returning " + InMebibytes(bytes) +
                  " of shared memory to the system failed: " + ErrnoText());
}

Status MappingCache::Map(int fd, std::size_t bytes, std::shared_ptr<Mapping>* mapping) {
  return MapRange(fd, bytes, 0, bytes, mapping);
}

Status MappingCache::MapRange(int fd, std::size_t file_bytes, std::size_t offset, std::size_t bytes,
                              std::shared_ptr<Mapping>* mapping) {
  if (offset % kLargestPage != 0) {
    return Internal("a range of shared memory begins at " + std::to_string(offset) +
                    ", which is not a multiple of " + std::to_string(kLargestPage));
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    return Internal("a shared memory descriptor is not valid: " + ErrnoText());
  }
  if (static_cast<std::size_t>(info.st_size) != file_bytes) {
    return Internal("a shared memory segment has " + std::to_string(info.st_size) + " bytes instead of " +
                    std::to_string(file_bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Internal("a shared memory descriptor is not a sealed memfd");
  }
  const Range key(info.st_dev, info.st_ino, offset, bytes);
  std::lock_guard<std::mutex> lock(mu_);
  *mapping = by_range_[key].lock();
  if (*mapping != nullptr) return {};
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return Internal("mapping " + InMebibytes(bytes) + " of shared memory failed: " + ErrnoText() +
                    "; if the address space is limited (ulimit -v), raise the limit or lower "
                    "SMDDP_ARENA_BYTES");
  }
  *mapping = std::make_shared<Mapping>(static_cast<std::byte*>(data), bytes);
  by_range_[key] = *mapping;
  return {};
}

}  // namespace tf_smddp
