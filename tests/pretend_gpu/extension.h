// For a library that puts work of its own on streams, as NCCL does (nccl/). It also has
// diagnostics.h for sentences, point.h for BlockedScope, and handles.h for its handles.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_EXTENSION_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_EXTENSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tests/pretend_gpu/visibility.h"

namespace pretend_gpu {

// All functions: any thread.

// Memory that work uses.
struct Memory {
  char* view;                 // where the stream's thread finds it
  int device;                 // -1: pinned host memory
  std::shared_ptr<void> use;  // while this lives, the memory must not be freed
};

// Returns the memory at [address, address + bytes). Ends the process if that is neither allocated device
// memory nor pinned host memory. In sentences, `what` is its role, such as "send buffer", and `user` what
// uses it. Zero bytes lie anywhere.
PRETEND_GPU_SHARED Memory UseMemory(const void* address, std::size_t bytes, const char* what,
                                    const std::string& user);

struct StreamFacts {
  int device;
  std::uint64_t id;
  std::string text;  // "stream 3 (role comm, device 0)"
};

// Ends the process if there is no such stream.
PRETEND_GPU_SHARED StreamFacts FactsOf(void* stream);

struct Work {
  // Runs on the stream's thread. While it waits for others, a BlockedScope must live: so a prompt stream does
  // the rest of it before the call that enqueues it returns. It is destroyed before the stream goes on.
  std::function<void()> run;
  // Returns whether somebody waits for it who does not wait for the stream; may be empty. A lazy stream asks
  // from time to time.
  std::function<bool()> wanted_elsewhere;
};

// The end of work on its stream.
struct WorkEnd {
  std::function<void()> wait;     // wakes a lazy stream
  std::function<bool()> reached;  // does not
};

PRETEND_GPU_SHARED WorkEnd EnqueueWork(void* stream, Work work);

// Waits as the driver's calls do with PRETEND_GPU_CONTEXT_LOCK: as most, and as those that free memory.
PRETEND_GPU_SHARED void WaitAsCallsDo(void* context);
PRETEND_GPU_SHARED void WaitAsFreeDoes(void* context);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_EXTENSION_H_
