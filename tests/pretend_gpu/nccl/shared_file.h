// A file in memory that processes share. It has no name in the file system, so that nothing is left of it
// when the processes have ended, however they end.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SHARED_FILE_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SHARED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pretend_gpu::nccl {

// By what another process of this machine and user finds a file.
struct Place {
  std::int32_t process;
  std::int32_t fd;
  std::uint64_t inode;
};

class SharedFile {
 public:
  // Makes a file of this size; it takes memory only where it is written. Ends the process if it cannot.
  static std::unique_ptr<SharedFile> Make(const char* name, std::size_t bytes);

  // Returns nullptr if the process that made it has ended, or has closed it.
  static std::unique_ptr<SharedFile> Open(const Place& place);

  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  int fd() const { return fd_; }
  Place place() const;

 private:
  explicit SharedFile(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SHARED_FILE_H_
