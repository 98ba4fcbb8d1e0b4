// Event: a point on a stream of a device.
#ifndef TF_SMDDP_KERNELS_CUDA_EVENT_H_
#define TF_SMDDP_KERNELS_CUDA_EVENT_H_

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/driver.h"

namespace tf_smddp::cuda {

// Makes events of one context, and uses them again: to create one takes longer than to record it.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // Goes back to the pool when nobody holds it.
  using Event = std::shared_ptr<EventTag>;

  EventPool(const Driver* driver, Context context) : driver_(driver), context_(context) {}

  // Sets *event to one that is recorded on `stream`: it is reached when all that is there now has ended. Any
  // thread.
  Status Record(Stream stream, Event* event);

 private:
  Status Take(EventHandle* handle);

  const Driver* const driver_;
  const Context context_;
  std::mutex mu_;
  std::vector<EventHandle> free_;  // guarded by mu_; they live as long as the process
};

using Event = EventPool::Event;

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_EVENT_H_
