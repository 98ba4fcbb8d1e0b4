// Shared memory without a name: memfd segments, and their mappings.
//
// Place in the stack: above common/. Not here: what lies in a segment (arena.h,
// kernels/control/job_segment.h) and how descriptors travel (kernels/control/unix_socket.h). /dev/shm and its
// container limit are not used, and nothing is left behind when a process is killed: the kernel frees a memfd
// with its last user.
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

// A segment mapped readable and writable into this process; unmapped with the object.
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

// Makes a memfd of exactly `bytes` zero bytes, sealed against growing and shrinking, so that no peer can make
// our accesses fault. Pages take memory when first touched. `name` shows in /proc/<pid>/maps.
// Errors: Internal, naming the limit (RLIMIT_FSIZE) or the system's error.
Status CreateSharedMemory(const char* name, std::size_t bytes, UniqueFd* fd);

// Gives the pages of [offset, offset + bytes) of a memfd back to the system; they read as zero afterwards.
// Both are multiples of the page size. Where the system refuses fallocate, they become zero and keep their
// memory.
Status PunchHole(int fd, std::size_t offset, std::size_t bytes);

// Maps segments; the same range asked for twice is mapped once. Ranks that are threads of one process share
// one MappingCache, so that a byte has one address (ThreadSanitizer goes by addresses). Any thread.
class MappingCache {
 public:
  // Maps the whole of `fd`, which the mapping does not need afterwards. Errors: Internal when `fd` is not a
  // sealed memfd of `bytes` bytes (a peer sent something else) or the address space is limited (RLIMIT_AS).
  Status Map(int fd, std::size_t bytes, std::shared_ptr<Mapping>* mapping);

  // Likewise [offset, offset + bytes) of a memfd of `file_bytes` bytes; `offset` is a multiple of the page
  // size.
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
