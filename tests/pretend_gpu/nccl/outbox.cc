#include "tests/pretend_gpu/nccl/outbox.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu::nccl {
namespace {

// Memory is given back in pages, so what is put begins with one.
constexpr std::uint64_t kPage = 4096;

std::uint64_t Pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::unique_ptr<Outbox> Outbox::Make() {
  return std::unique_ptr<Outbox>(new Outbox(SharedFile::Make("pretend_nccl_outbox", 0)));
}

std::unique_ptr<Outbox> Outbox::Open(const Place& place) {
  auto file = SharedFile::Open(place);
  return file == nullptr ? nullptr : std::unique_ptr<Outbox>(new Outbox(std::move(file)));
}

std::uint64_t Outbox::Put(const void* data, std::size_t bytes) {
  const std::uint64_t offset = next_.fetch_add(Pages(bytes));
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t written = pwrite(file_->fd(), static_cast<const char*>(data) + done, bytes - done,
                                   static_cast<off_t>(offset + done));
    if (written <= 0) End("%zu bytes cannot be put into shared memory: %m", bytes);
    done += static_cast<std::size_t>(written);
  }
  return offset;
}

void Outbox::Take(std::uint64_t offset, void* data, std::size_t bytes) const {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t read =
        pread(file_->fd(), static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
    if (read <= 0) End("%zu bytes cannot be taken from shared memory: %m", bytes);
    done += static_cast<std::size_t>(read);
  }
}

void Outbox::Forget(std::uint64_t offset, std::size_t bytes) const {
  if (bytes == 0) return;
  fallocate(file_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(Pages(bytes)));
}

}  // namespace pretend_gpu::nccl
