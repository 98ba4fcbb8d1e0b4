// Device: the memory of one GPU, as the engine's bounce buffers see it, and the streams of our own there.
//
// Place in the stack: above driver.h and event_waiter.h; a MemoryKind (kernels/memory/buffer.h).
//
// TensorFlow computes on a stream of its own, the *compute stream*. Our copies have two other streams, one
// for each direction, so that they and the computation run beside each other. They are made when they are
// needed: streams beyond a few share the GPU's hardware queues.
//   - A copy from the device waits for an event on the compute stream: the input is there.
//   - A copy to the device waits for such an event, too. Where the output lies, kernels that came before may
//     still read what lay there then: TensorFlow reuses memory in the order of its stream.
//   - Nothing on the compute stream waits for our copies. Whoever needs a result is started when it is in the
//     device's memory (Order::writes).
#ifndef TF_SMDDP_KERNELS_CUDA_DEVICE_H_
#define TF_SMDDP_KERNELS_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/cuda/driver.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/own_stream.h"
#include "kernels/cuda/writes.h"
#include "kernels/memory/buffer.h"

namespace tf_smddp::cuda {

// The streams that order the uses of an op's tensors. A buffer's `stream` is the address of one.
struct Order {
  Stream compute = nullptr;
  Event reached;  // on `compute`, behind what made the buffer; our streams wait for it
  Event Reached() const { return std::atomic_load(&reached); }  // any thread, also beside Mark
  std::shared_ptr<Writes> writes = std::make_shared<Writes>();  // and other uses, on our streams
};

// All methods: any thread.
class Device : public MemoryKind {
 public:
  // Sets *device to that of the context of `compute`, a stream. It lives as long as the process. Errors:
  // Internal (no driver, or what the driver says).
  static Status Of(Stream compute, Device** device);

  // Sets order->reached: behind all that is on order->compute now.
  Status Mark(Order* order);

  // Puts a copy of `bytes` bytes, at least one, within this memory on `compute` itself: behind all that is
  // there now, and before what comes there next.
  Status CopyInOrder(Stream compute, const void* from, void* to, std::uint64_t bytes);

  // Makes a stream of ours, whose thread is called `thread`.
  Status NewStream(const char* thread, std::unique_ptr<OwnStream>* stream);

  const Driver* driver() const { return driver_; }
  Context context() const { return context_; }

  // MemoryKind:
  std::string name() const override { return "GPU " + std::to_string(number_); }
  // "GPU 0 (UUID 00112233-4455-6677-8899-aabbccddeeff)"
  std::string Describe() const override;
  // Different for parts of a GPU (MIG), too.
  std::uint64_t id() const override { return id_; }
  std::uint64_t board() const override { return board_; }
  Status CopyToHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) override;
  Status CopyFromHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) override;
  Status Copy(const InputBuffer& from, const Buffer& to, std::uint64_t bytes, Ended ended) override;
  std::function<bool()> Writing(void* stream) const override;
  bool pins() const override { return true; }
  Status Pin(void* data, std::uint64_t bytes) override;
  void Unpin(void* data) override;

 private:
  struct CopyStream {
    const char* thread;
    std::mutex mu;                      // held while a copy and its event are put on the stream
    std::unique_ptr<OwnStream> stream;  // made for the first copy
  };

  Device(const Driver* driver, Context context)
      : driver_(driver), context_(context), events_(std::make_shared<EventPool>(driver, context)) {}

  Status Open();
  template <typename Begin>
  Status Put(CopyStream* on, const Order& order, Begin begin, Ended ended);
  template <typename Begin>
  Status PutUse(CopyStream* on, const Order& order, Begin begin, Ended ended);

  const Driver* const driver_;
  const Context context_;
  const std::shared_ptr<EventPool> events_;
  int number_ = 0;
  Uuid uuid_ = {};
  std::uint64_t id_ = 0, board_ = 0;
  CopyStream to_host_{"smddp-from-gpu", {}, {}}, to_device_{"smddp-to-gpu", {}, {}};
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_DEVICE_H_
