#include "tests/pretend_gpu/event.h"

#include <chrono>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {

void Event::Record(const StreamHandle& stream) {
  if (stream.context != context_) {
    End("the event belongs to %s, and %s to %s; record an event on streams of its own context",
        Contexts().Get(context_)->Describe().c_str(), stream.stream->Describe().c_str(),
        Contexts().Get(stream.context)->Describe().c_str());
  }
  auto mark = Enqueue(stream, Task());
  std::lock_guard<std::mutex> lock(mu_);
  last_ = std::move(mark);
}

std::shared_ptr<Point> Event::Last() {
  std::lock_guard<std::mutex> lock(mu_);
  return last_;
}

bool Event::Elapsed(Event& end, float* milliseconds) {
  if (!timed_ || !end.timed_) {
    End("one of the events was made without times; leave CU_EVENT_DISABLE_TIMING out");
  }
  if (context_ != end.context_) End("the events belong to different contexts; take both of one");
  const auto first = Last(), last = end.Last();
  if (first == nullptr || last == nullptr) End("one of the events was never recorded; record both first");
  if (!first->Reached() || !last->Reached()) return false;
  *milliseconds = std::chrono::duration<float, std::milli>(last->when() - first->when()).count();
  return true;
}

HandleTable<Event>& Events() {
  static auto* events = new HandleTable<Event>("event");
  return *events;
}

}  // namespace pretend_gpu
