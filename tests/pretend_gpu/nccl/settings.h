// The environment variables, read once. README.md lists them.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SETTINGS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace pretend_gpu::nccl {

struct Settings {
  long limit_s;      // PRETEND_GPU_NCCL_LIMIT_S: how long a rank waits for others; 0: forever
  long peers_us;     // PRETEND_GPU_NCCL_PEERS_US: after what wait a rank wakes the others' lazy streams
  bool concurrent;   // PRETEND_GPU_NCCL_CONCURRENT: whether kernels of two communicators fit on a device
  bool one_at_once;  // PRETEND_GPU_NCCL_ROOM: whether a device has room for the kernels of one communicator
  bool ring;         // PRETEND_GPU_NCCL_RING: whether the order of ranks in a sum depends on its place
  bool leaks;        // PRETEND_GPU_NCCL_LEAKS: whether a communicator that is left at exit ends the process
  bool spoils;    // PRETEND_GPU_NCCL_SPOIL: whether the end of a communicator spoils what others still read
  long abort_ms;  // PRETEND_GPU_NCCL_ABORT_MS: how long an abort takes
  std::size_t memory_bytes;       // PRETEND_GPU_NCCL_MEMORY_MB: of the device, that a communicator takes
  std::size_t peer_memory_bytes;  // PRETEND_GPU_NCCL_PEER_MEMORY_MB: that its first send or receive takes
  int failing_rank;               // PRETEND_GPU_NCCL_FAIL, its first part; -1: none
  std::uint64_t failing_call;     // its second part, counted from 1
  std::string host;               // NCCL_HOSTID: ranks of different hosts have different GPUs
  bool ranks_share;               // NCCL_MULTI_RANK_GPU_ENABLE: ranks of a host may have one GPU
};

// Any thread. Ends the process if a variable has a value that cannot be read.
const Settings& GetSettings();

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SETTINGS_H_
