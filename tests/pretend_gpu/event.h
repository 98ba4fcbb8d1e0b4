// Events: a program's marks on streams.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_EVENT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_EVENT_H_

#include <memory>
#include <mutex>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/handles.h"
#include "tests/pretend_gpu/point.h"

namespace pretend_gpu {

// All methods: any thread.
class Event {
 public:
  Event(void* context, bool timed) : context_(context), timed_(timed) {}

  // Marks the end of what is on the stream now. The mark replaces the one before.
  void Record(const StreamHandle& stream);

  // Returns the last mark, or nullptr if there is none: who waits for that does not wait.
  std::shared_ptr<Point> Last();

  // Returns the milliseconds from this event's mark to the other's. Ends the process unless both have times;
  // returns false if one is not reached.
  bool Elapsed(Event& end, float* milliseconds);

  void* context() const { return context_; }
  bool timed() const { return timed_; }

 private:
  void* const context_;
  const bool timed_;
  std::mutex mu_;
  std::shared_ptr<Point> last_;  // guarded by mu_
};

HandleTable<Event>& Events();

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_EVENT_H_
