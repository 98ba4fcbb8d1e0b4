#include "kernels/engine/devices/bounce_buffer.h"

#include <cstring>
#include <string>

namespace tf_smddp {

Status BounceBuffer::Allocate(std::shared_ptr<BouncePool> pool, MemoryKind* kind, std::uint64_t bytes,
                              const Manifest& owner, std::shared_ptr<BounceBuffer>* bounce) {
  void* span = nullptr;
  const Status status = pool->Allocate(kind, bytes, &span);
  if (!status.ok()) {
    return {status.code(), "could not pin memory for " + DescribeManifest(owner) + ": " + status.message()};
  }
  if (span == nullptr) {
    return pool->arena().FullError(std::to_string(bytes) + " bytes of " + DescribeManifest(owner) +
                                   ", whose tensor lies in memory of a device");
  }
  bounce->reset(new BounceBuffer(std::move(pool), span, bytes));
  return {};
}

void BounceBuffer::Fill(const InputBuffer& from, std::function<void()> ended) {
  const MemoryKind::Ended end = [self = shared_from_this(), ended = std::move(ended)](const Status& status) {
    self->fill_status_ = status;
    self->filled_.store(true, std::memory_order_release);
    ended();
  };
  if (from.on_host()) {
    std::memcpy(span_, from.data, bytes_);
    return end(Status());
  }
  const Status status = from.kind->CopyToHost(from.data, span_, bytes_, from.stream, end);
  if (!status.ok()) end(status);
}

Status BounceBuffer::Drain(const Buffer& to, MemoryKind::Ended ended) {
  if (to.on_host()) {
    std::memcpy(to.data, span_, bytes_);
    return {};
  }
  return to.kind->CopyFromHost(
      span_, to.data, bytes_, to.stream,
      [self = shared_from_this(), ended = std::move(ended)](const Status& status) { ended(status); });
}

}  // namespace tf_smddp
