#include "kernels/cuda/own_stream.h"

#include <utility>

#include "kernels/common/thread.h"

namespace tf_smddp::cuda {

Status OwnStream::Open(const Driver* driver, Context context, std::shared_ptr<EventPool> events,
                       const char* thread, std::unique_ptr<OwnStream>* opened) {
  const CurrentContext current(driver, context);
  std::unique_ptr<OwnStream> opening(new OwnStream(driver, context, std::move(events)));
  int least = 0, greatest = 0;
  Status status =
      driver->Check("cuCtxGetStreamPriorityRange", driver->CtxGetStreamPriorityRange(&least, &greatest));
  if (!status.ok()) return status;
  status = driver->Check("cuStreamCreateWithPriority",
                         driver->StreamCreateWithPriority(&opening->stream_, kStreamNonBlocking, greatest));
  if (!status.ok()) return status;
  try {
    opening->waiter_ = std::make_unique<EventWaiter>(driver, context, thread);
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  *opened = std::move(opening);
  return {};
}

OwnStream::~OwnStream() {
  if (waiter_ != nullptr) waiter_->Stop();
  if (stream_ == nullptr) return;
  const CurrentContext current(driver_, context_);
  // Nobody is left whom an error would concern.
  static_cast<void>(driver_->StreamDestroy(stream_));
}

Status OwnStream::WaitFor(const Event& event) {
  const CurrentContext current(driver_, context_);
  return driver_->Check("cuStreamWaitEvent", driver_->StreamWaitEvent(stream_, event.get(), /*flags=*/0));
}

Status OwnStream::WhenReached(EventWaiter::Reached reached) {
  Event event;
  const Status status = events_->Record(stream_, &event);
  if (status.ok()) waiter_->Add(std::move(event), std::move(reached));
  return status;
}

void OwnStream::Then(std::function<void()> call) {
  waiter_->Add(nullptr, [call = std::move(call)](const Status&) { call(); });
}

}  // namespace tf_smddp::cuda
