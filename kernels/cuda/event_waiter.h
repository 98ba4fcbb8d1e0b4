// EventWaiter: a thread that waits for the events of one stream, in their order, and says when each is
// reached.
//
// The driver can call functions when a stream comes to them, but not after an error on the device: then it
// drops them without a word. A thread that waits gets the error.
#ifndef TF_SMDDP_KERNELS_CUDA_EVENT_WAITER_H_
#define TF_SMDDP_KERNELS_CUDA_EVENT_WAITER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/cuda/event.h"

namespace tf_smddp::cuda {

class EventWaiter {
 public:
  // OK when the event was reached; else what the driver says.
  using Reached = std::function<void(const Status&)>;

  // The thread is called `name`. Throws ThreadRefused.
  EventWaiter(const Driver* driver, Context context, const char* name);
  ~EventWaiter() { Stop(); }

  // Waits for all events, also those that are added meanwhile, and ends the thread.
  void Stop();

  // Calls `reached`, in the thread, when `event` is reached and the calls before it have returned. It returns
  // quickly. Without an event it waits for those calls alone. Any thread.
  void Add(Event event, Reached reached);

 private:
  struct Waiting {
    Event event;
    Reached reached;
  };

  void Run();

  const Driver* const driver_;
  const Context context_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;  // guarded by mu_
  bool stopping_ = false;        // guarded by mu_
  std::thread thread_;           // last: it uses the others
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_EVENT_WAITER_H_
