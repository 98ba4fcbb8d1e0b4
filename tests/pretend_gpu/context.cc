#include "tests/pretend_gpu/context.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {

std::shared_ptr<Stream> Context::StartStream(bool waits_for_null_stream, int priority, std::string role) {
  auto stream = Stream::Start(device_, waits_for_null_stream, priority, std::move(role));
  std::lock_guard<std::mutex> lock(mu_);
  streams_.insert(stream);
  return stream;
}

void Context::EndStream(const std::shared_ptr<Stream>& stream) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    streams_.erase(stream);
    ended_tails_.erase(std::remove_if(ended_tails_.begin(), ended_tails_.end(),
                                      [](const auto& tail) { return tail->Reached(); }),
                       ended_tails_.end());
    if (auto tail = stream->Tail()) ended_tails_.push_back(std::move(tail));
  }
  stream->Close();
}

std::shared_ptr<Stream> Context::NullStream() {
  std::lock_guard<std::mutex> lock(mu_);
  if (null_stream_ == nullptr) {
    null_stream_ = Stream::Start(device_, true, 0, "null-stream");
    streams_.insert(null_stream_);
  }
  return null_stream_;
}

std::shared_ptr<Point> Context::Enqueue(const std::shared_ptr<Stream>& stream, Task task) {
  std::vector<std::shared_ptr<Point>> before;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& other : streams_) {
      const bool ordered = stream == null_stream_ ? other->waits_for_null_stream()
                                                  : stream->waits_for_null_stream() && other == null_stream_;
      if (!ordered || other == stream) continue;
      if (auto tail = other->Tail(); tail && !tail->Reached()) before.push_back(std::move(tail));
    }
  }
  if (!before.empty()) {
    Task wait;
    wait.run = [before] {
      for (const auto& point : before) point->Wait();
    };
    stream->Push(std::move(wait));
  }
  return stream->Push(std::move(task));
}

void Context::Synchronize() {
  std::vector<std::shared_ptr<Point>> tails;
  {
    std::lock_guard<std::mutex> lock(mu_);
    tails = std::move(ended_tails_);
    ended_tails_.clear();
    for (const auto& stream : streams_) {
      if (auto tail = stream->Tail()) tails.push_back(std::move(tail));
    }
  }
  for (const auto& tail : tails) tail->Wait();
}

void Context::AwaitLock() {
  if (GetSettings().context_lock) std::lock_guard<std::recursive_mutex> lock(alone_);
}

std::unique_lock<std::recursive_mutex> Context::LockAlone() {
  if (!GetSettings().context_lock) return {};
  std::unique_lock<std::recursive_mutex> lock(alone_);
  Synchronize();
  return lock;
}

std::string Context::Describe() const {
  return std::string(primary_ ? "the primary context" : "a context") + " of device " +
         std::to_string(device_);
}

HandleTable<Context>& Contexts() {
  static auto* contexts = new HandleTable<Context>("context");
  return *contexts;
}

HandleTable<StreamHandle>& Streams() {
  static auto* streams = new HandleTable<StreamHandle>("stream");
  return *streams;
}

void* PrimaryContext(int device) {
  static auto* mu = new std::mutex;
  static auto* primary = new std::map<int, void*>;
  std::lock_guard<std::mutex> lock(*mu);
  void*& handle = (*primary)[device];
  if (handle == nullptr) handle = Contexts().Add(std::make_shared<Context>(device, true));
  return handle;
}

std::vector<void*>& ContextStack() {
  thread_local std::vector<void*> stack;
  return stack;
}

void* CurrentHandle() { return ContextStack().empty() ? nullptr : ContextStack().back(); }

std::shared_ptr<Context> CurrentContext() {
  if (CurrentHandle() == nullptr) {
    End("no context is current on this thread; call cuCtxSetCurrent or cudaSetDevice on each thread first");
  }
  return Contexts().Get(CurrentHandle());
}

StreamHandle StreamOf(void* handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number == 2) End("the stand-in has no per-thread default stream; make a stream");
  if (number > 2) return *Streams().Get(handle);
  return {CurrentHandle(), CurrentContext()->NullStream()};
}

std::shared_ptr<Point> Enqueue(const StreamHandle& stream, Task task) {
  return Contexts().Get(stream.context)->Enqueue(stream.stream, std::move(task));
}

}  // namespace pretend_gpu
