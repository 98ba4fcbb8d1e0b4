#include "kernels/cuda/event.h"

namespace tf_smddp::cuda {

Status EventPool::Take(EventHandle* handle) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!free_.empty()) {
      *handle = free_.back();
      free_.pop_back();
      return {};
    }
  }
  // Who waits for it sleeps. To spin saves some microseconds, but a thread waits for most of each backward
  // pass, on each rank, and would take a core from the input pipeline.
  return driver_->Check("cuEventCreate",
                        driver_->EventCreate(handle, kEventDisableTiming | kEventBlockingSync));
}

Status EventPool::Record(Stream stream, Event* event) {
  const CurrentContext current(driver_, context_);
  EventHandle handle = nullptr;
  Status status = Take(&handle);
  if (!status.ok()) return status;
  *event = Event(handle, [self = shared_from_this()](EventHandle returned) {
    std::lock_guard<std::mutex> lock(self->mu_);
    self->free_.push_back(returned);
  });
  return driver_->Check("cuEventRecord", driver_->EventRecord(handle, stream));
}

}  // namespace tf_smddp::cuda
