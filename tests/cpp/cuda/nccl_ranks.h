// Ranks as threads with a device each, on the pretend GPU and the pretend NCCL.
//
// A rank computes on one stream, whose role is "compute"; NCCL's calls run on another one, "comm".
#ifndef TF_SMDDP_TESTS_CPP_CUDA_NCCL_RANKS_H_
#define TF_SMDDP_TESTS_CPP_CUDA_NCCL_RANKS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/common/status.h"
#include "kernels/cuda/event.h"
#include "tests/pretend_gpu/api/driver.h"

namespace tf_smddp::testing {

// Under each, one of the streams comes too early for whoever does not wait for it.
inline constexpr const char* kNcclPolicies[] = {"prompt", "random", "compute=lazy,comm=prompt",
                                                "compute=prompt,comm=lazy", "lazy"};

#define CUDA_OK(call) ASSERT_EQ(CUDA_SUCCESS, (call)) << #call

inline void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

// Expects an error whose message has `part` in it.
void ExpectError(const Status& status, const char* part);

// The pretend NCCL, opened once.
const nccl::Library& PretendNccl();
nccl::UniqueId NewId();

struct NcclRank {
  int rank = 0;
  int num_ranks = 1;
  nccl::Place place;
  CUstream compute = nullptr, comm = nullptr;
  std::shared_ptr<cuda::EventPool> events;

  cuda::Stream comm_stream() const { return reinterpret_cast<cuda::Stream>(comm); }

  // Has `then` wait for what is on `first` now.
  void Order(CUstream first, CUstream then) const;

  // Returns a communicator of all ranks that is ready.
  std::unique_ptr<nccl::Communicator> Join(const nccl::UniqueId& id) const;
};

// Runs the body on each rank, in a thread of its own, in which its device is current; `id` is a new one.
void RunNcclRanks(int num_ranks,
                  const std::function<void(const NcclRank& rank, const nccl::UniqueId& id)>& body);

// Polls until it is ready, or has an error, which is returned; or for ten seconds, which is one, too.
Status AwaitReady(nccl::Communicator* communicator);

// Device memory, poisoned at first.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  // When no stream uses it any more.
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void Write(const std::vector<std::byte>& content, CUstream stream) const;
  void Set(int value, CUstream stream) const;  // of each int32; the host waits for nothing
  std::vector<std::byte> Read(CUstream stream) const;
  std::vector<int> ReadInts(CUstream stream) const;

  void* address() const { return reinterpret_cast<void*>(data_); }

 private:
  const std::size_t bytes_;
  CUdeviceptr data_ = 0;
};

// The calls of an allreduce of int32, summed.
std::vector<nccl::NcclCall> SumOfInts(const NcclRank& rank, const DeviceMemory& input,
                                      const DeviceMemory& output, std::size_t count);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_CUDA_NCCL_RANKS_H_
