// BounceBuffer: a span of the arena that stands in for a buffer that the CPU may not touch.
//
// Place in the stack: below submission.h, which fills it from the input, and delivery.h, which drains it to
// the output. In between, the request is like any other whose tensors lie in the arena. The ranks need not
// agree: each bounces its own buffers.
//
// A request is entered in the readiness table when its bounce buffer is filled, and is deferred until then. A
// tensor that has stayed on its device for NCCL is bounced later, when the ranks have met, if another rank's
// tensor is on the host. A request is complete when the copy to its output is on the output's stream.
#ifndef TF_SMDDP_KERNELS_ENGINE_DEVICES_BOUNCE_BUFFER_H_
#define TF_SMDDP_KERNELS_ENGINE_DEVICES_BOUNCE_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "kernels/common/status.h"
#include "kernels/control/manifest.h"
#include "kernels/engine/devices/bounce_pool.h"
#include "kernels/memory/buffer.h"

namespace tf_smddp {

// The copies share the ownership, so the span is freed when the request has ended and no copy is under way.
class BounceBuffer : public std::enable_shared_from_this<BounceBuffer> {
 public:
  // Sets *bounce to one of `bytes` bytes, for copies from or to memory of `kind`. Error: Internal when the
  // arena is full, or memory cannot be pinned; it names `owner`, the request.
  static Status Allocate(std::shared_ptr<BouncePool> pool, MemoryKind* kind, std::uint64_t bytes,
                         const Manifest& owner, std::shared_ptr<BounceBuffer>* bounce);

  ~BounceBuffer() { pool_->Free(span_); }
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;

  void* span() const { return span_; }

  // Begins to copy `from` to the span; once. `ended` is called when filled() has become true, by any thread,
  // perhaps before this returns.
  void Fill(const InputBuffer& from, std::function<void()> ended);

  // Whether the copy of Fill has ended. fill_status() is valid then. Any thread.
  bool filled() const { return filled_.load(std::memory_order_acquire); }
  const Status& fill_status() const { return fill_status_; }

  // Puts a copy of the span to `to` on its stream; to host memory, copies at once. `ended` is called as by
  // MemoryKind::CopyFromHost.
  Status Drain(const Buffer& to, MemoryKind::Ended ended);

 private:
  BounceBuffer(std::shared_ptr<BouncePool> pool, void* span, std::uint64_t bytes)
      : pool_(std::move(pool)), span_(span), bytes_(bytes) {}

  const std::shared_ptr<BouncePool> pool_;
  void* const span_;
  const std::uint64_t bytes_;
  std::atomic<bool> filled_{false};
  Status fill_status_;  // written before filled_
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_DEVICES_BOUNCE_BUFFER_H_
