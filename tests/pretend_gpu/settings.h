// The environment variables, read once. README.md lists them.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_SETTINGS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace pretend_gpu {

struct Settings {
  int devices;               // PRETEND_GPU_DEVICES
  int slices;                // PRETEND_GPU_SLICES: so many devices in a row are parts of one board
  std::size_t memory_bytes;  // of each device: PRETEND_GPU_MEMORY_MB
  std::string policy;        // PRETEND_GPU_POLICY, see policy.h
  std::uint64_t seed;        // PRETEND_GPU_SEED: for random delays and drawn moods
  long delay_us;             // PRETEND_GPU_DELAY_US: the longest usual delay of a task on a random stream
  long lazy_us;              // PRETEND_GPU_LAZY_US: how long a lazy stream waits for somebody to wait for it
  long pace_us;              // PRETEND_GPU_PACE_US: how long a task on a paced stream takes
  std::string trace;         // PRETEND_GPU_TRACE: the file that gets a line for each task; "": none
  std::string kernels;       // PRETEND_GPU_KERNELS: libraries with twins, separated by colons
  std::string waits;         // PRETEND_GPU_WAITS: a file to which each wait is added
  std::string leave_out;     // PRETEND_GPU_LEAVE_OUT: the wait that is not made, as it stands in that file
  int cudnn;                 // PRETEND_GPU_CUDNN: the major version that cuDNN says it has
  bool log;                  // PRETEND_GPU_LOG: each call of note goes to stderr
  bool context_lock;         // PRETEND_GPU_CONTEXT_LOCK: whether calls that free or load lock their context
};

// Any thread. Ends the process if a variable has a value that cannot be read.
const Settings& GetSettings();

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_SETTINGS_H_
