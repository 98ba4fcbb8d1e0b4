// OwnStream: a stream of ours on a device, and the thread that waits for what is there.
//
// It has the greatest priority. While a large kernel computes, what is on the stream gets the next
// multiprocessor that becomes free: other ranks wait for it.
#ifndef TF_SMDDP_KERNELS_CUDA_OWN_STREAM_H_
#define TF_SMDDP_KERNELS_CUDA_OWN_STREAM_H_

#include <functional>
#include <memory>

#include "kernels/cuda/driver.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/event_waiter.h"

namespace tf_smddp::cuda {

// All methods: any thread. Several threads that put things on it agree among themselves.
class OwnStream {
 public:
  // `thread`: the name of the thread. Errors: Internal, what the driver or the system says.
  static Status Open(const Driver* driver, Context context, std::shared_ptr<EventPool> events,
                     const char* thread, std::unique_ptr<OwnStream>* opened);

  // Waits for all that WhenReached and Then were called for.
  ~OwnStream();

  Stream handle() const { return stream_; }

  // Sets *event to one that is reached when all that is on the stream now has ended.
  Status Mark(Event* event) { return events_->Record(stream_, event); }

  // Work that is put on the stream from now on waits for `event`.
  Status WaitFor(const Event& event);

  // Calls `reached`, in the thread, when all that is on the stream now has ended, and the calls before it
  // have returned. It returns quickly. If an error is returned, it is never called.
  Status WhenReached(EventWaiter::Reached reached);

  // Calls `call`, in the thread, when the calls before it have returned. The calls after it wait for it.
  void Then(std::function<void()> call);

 private:
  OwnStream(const Driver* driver, Context context, std::shared_ptr<EventPool> events)
      : driver_(driver), context_(context), events_(std::move(events)) {}

  const Driver* const driver_;
  const Context context_;
  const std::shared_ptr<EventPool> events_;
  Stream stream_ = nullptr;
  std::unique_ptr<EventWaiter> waiter_;
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_OWN_STREAM_H_
