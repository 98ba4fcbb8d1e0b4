// Shared memory: anonymous segments (memfd) and their mappings.
//
// Place in the stack: above common/. arena.h and kernels/control/job_segment.h define the contents of a
// segment; kernels/control/unix_socket.h sends its descriptor to other processes. A memfd does not use
// /dev/shm, which is often small in containers. The kernel frees it with the last process that uses it, so
// killed processes leave nothing.
#ifndef TF_SMDDP_KERNELS_MEMORY_SHARED_MEMORY_H_
#define TF_SMDDP_KERNELS_MEMORY_SHARED_MEMORY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"

namespace tf_smddp {

// A readable and writable mapping of a segment, which ends with the object.
class Mapping {
 public:
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* const data_;
  const std::size_t bytes_;
};

// Ranges of a memfd begin at multiples of it: Linux on Arm can have pages of 64 KiB.
constexpr std::size_t kLargestPage = 65536;

// Creates a memfd of exactly `bytes` zero bytes. It is sealed against growing and shrinking, so that no peer
// can make accesses of this process fault. Pages take memory when first touched. `name` shows in
// /proc/<pid>/maps. Errors: Internal, naming the limit (RLIMIT_FSIZE) or the system's error.
Status CreateSharedMemory(const char* name, std::size_t bytes, UniqueFd* fd);

// Returns the pages of [offset, offset + bytes) of a memfd to the system; they read as zero afterwards. Both
// are multiples of the page size. If the system refuses fallocate, writes zeros instead, and the pages keep
// their memory.
Status PunchHole(int fd, std::size_t offset, std::size_t bytes);

// Maps segments, and each range only once. Ranks that are threads of one process share one MappingCache, so
// that each byte has one address, as ThreadSanitizer needs it. Any thread.
class MappingCache {
 public:
  // Maps the whole of `fd`, which may be closed afterwards. Errors: Internal when `fd`, which may come from a
  // peer, is not a sealed memfd of `bytes` bytes, or when the address space is limited (RLIMIT_AS).
  Status Map(int fd, std::size_t bytes, std::shared_ptr<Mapping>* mapping);

  // Maps [offset, offset + bytes) of a memfd of `file_bytes` bytes. `offset` must be a multiple of
  // kLargestPage on every machine, so that a wrong layout fails everywhere. Errors: as above, and for
  // `offset`.
  Status MapRange(int fd, std::size_t file_bytes, std::size_t offset, std::size_t bytes,
                  std::shared_ptr<Mapping>* mapping);

 private:
  using Range =
      std::tuple<unsigned long, unsigned long, std::size_t, std::size_t>;  // device, inode, offset, bytes

  std::mutex mu_;
  std::map<Range, std::weak_ptr<Mapping>> by_range_;  // guarded by mu_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_SHARED_MEMORY_H_
