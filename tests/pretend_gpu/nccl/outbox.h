// The data that a rank sends, for the others to take: a file that grows at one end, and is emptied at the
// other.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_OUTBOX_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_OUTBOX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/pretend_gpu/nccl/shared_file.h"

namespace pretend_gpu::nccl {

// Any thread.
class Outbox {
 public:
  // A new one, or that of another rank; nullptr if its process has ended.
  static std::unique_ptr<Outbox> Make();
  static std::unique_ptr<Outbox> Open(const Place& place);

  Place place() const { return file_->place(); }

  // Puts a copy of the bytes into the outbox; returns its offset. Only of one's own.
  std::uint64_t Put(const void* data, std::size_t bytes);

  // Copies bytes that were put.
  void Take(std::uint64_t offset, void* data, std::size_t bytes) const;

  // Gives back the memory of what nobody will take any more.
  void Forget(std::uint64_t offset, std::size_t bytes) const;

 private:
  explicit Outbox(std::unique_ptr<SharedFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<SharedFile> file_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_OUTBOX_H_
