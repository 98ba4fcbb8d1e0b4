// Contexts: which device a thread works on, and which streams there are.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_CONTEXT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/pretend_gpu/handles.h"
#include "tests/pretend_gpu/stream.h"

namespace pretend_gpu {

// All methods: any thread.
class Context {
 public:
  Context(int device, bool primary) : device_(device), primary_(primary) {}

  int device() const { return device_; }
  bool primary() const { return primary_; }

  std::shared_ptr<Stream> StartStream(bool waits_for_null_stream, int priority, std::string role);

  // The stream's tasks still run, and Synchronize waits for them.
  void EndStream(const std::shared_ptr<Stream>& stream);

  // Returns the legacy default stream; it starts at the first use.
  std::shared_ptr<Stream> NullStream();

  // Pushes the task in the order that the legacy default stream asks for: it waits for the streams that wait
  // for it, and they for it.
  std::shared_ptr<Point> Enqueue(const std::shared_ptr<Stream>& stream, Task task);

  // Waits for all tasks of all streams.
  void Synchronize();

  // With PRETEND_GPU_CONTEXT_LOCK, waits until no other thread has the lock of LockAlone. All calls that use
  // the context do.
  void AwaitLock();

  // With PRETEND_GPU_CONTEXT_LOCK, waits for all tasks of all streams, and lets other threads wait from now
  // on for as long as the result lives. Calls that free memory or load code do.
  std::unique_lock<std::recursive_mutex> LockAlone();

  // Returns "context 1 (device 0)".
  std::string Describe() const;

 private:
  const int device_;
  const bool primary_;
  std::mutex mu_;
  std::set<std::shared_ptr<Stream>> streams_;        // guarded by mu_, as is what follows
  std::shared_ptr<Stream> null_stream_;              // also in streams_
  std::vector<std::shared_ptr<Point>> ended_tails_;  // of streams that were ended
  std::recursive_mutex alone_;                       // of LockAlone; taken before mu_
};

// A stream as a program has it.
struct StreamHandle {
  void* context;  // its handle
  std::shared_ptr<Stream> stream;
};

HandleTable<Context>& Contexts();
HandleTable<StreamHandle>& Streams();

// Returns the handle of the device's primary context, which is made at the first call. Any thread.
void* PrimaryContext(int device);

// The contexts of this thread, the current one last. CUDA keeps them for each thread.
std::vector<void*>& ContextStack();

// Returns the handle of the current context, or nullptr.
void* CurrentHandle();

// Returns the current context. Ends the process if there is none, or if it was destroyed.
std::shared_ptr<Context> CurrentContext();

// Returns the stream of a handle, and for the legacy default stream (0 and 1) that of the current context.
// Ends the process if there is no such stream.
StreamHandle StreamOf(void* handle);

// Pushes a task on a stream that StreamOf returned.
std::shared_ptr<Point> Enqueue(const StreamHandle& stream, Task task);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_CONTEXT_H_
