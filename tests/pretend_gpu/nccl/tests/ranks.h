// Tests with several ranks: as threads of this process, with a device each, or as processes.
//
// A rank runs a program with a name. As a process, it is this test program again, told by its
// arguments what to do. A failed EXPECT fails the test, wherever the rank is.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TESTS_RANKS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TESTS_RANKS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/nccl/api/nccl.h"

namespace pretend_gpu::nccl::testing {

// Fails the test unless the call succeeds.
#define CUDA_OK(call) ASSERT_EQ(cudaSuccess, (call)) << #call
#define NCCL_OK(call) ASSERT_EQ(ncclSuccess, (call)) << #call

// Long enough that a lazy stream never goes on by itself in a test.
inline constexpr const char* kNever = "3600000000";

// The objects of a rank. Its device is that of its number.
struct Rank {
  int rank;
  int ranks;
  std::vector<ncclUniqueId> ids;  // for four communicators
  CUstream stream = nullptr;

  // Returns its communicator of the first id, or of another one.
  ncclComm_t Join(int id = 0) const;
};

using Program = void (*)(Rank& rank);

// Gives a program a name, by which processes find it.
struct Named {
  Named(const char* name, Program program);
};

// Runs the program on each rank, and waits for all.
void RunThreads(int ranks, Program program);
void RunProcesses(int ranks, const char* name);

// The ranks of a test that looks after them itself.
class Processes {
 public:
  // Each has the variables of the environment, such as "A=1", besides ours.
  Processes(int ranks, const char* name, const std::vector<std::string>& variables = {});
  ~Processes();

  void Kill(int rank);

  // Waits for the end of a rank; returns its status. It is killed after a time limit.
  int Wait(int rank);

  // Returns what the rank has written to its standard error output. After Wait.
  std::string Errors(int rank) const;

 private:
  struct Process {
    pid_t id;
    std::string errors;  // a file
  };
  std::vector<Process> processes_;
};

// Four ids, each of a new communicator.
std::vector<ncclUniqueId> NewIds();

// Device memory with these elements; and its elements, after all that is on the stream.
template <class T>
T* Upload(const std::vector<T>& elements, CUstream stream) {
  T* address = nullptr;
  const std::size_t bytes = elements.size() * sizeof(T);
  EXPECT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&address), bytes));
  EXPECT_EQ(cudaSuccess, cudaMemcpyAsync(address, elements.data(), bytes, cudaMemcpyHostToDevice, stream));
  return address;
}
template <class T>
std::vector<T> Download(const T* address, std::size_t count, CUstream stream) {
  std::vector<T> elements(count);
  EXPECT_EQ(cudaSuccess,
            cudaMemcpyAsync(elements.data(), address, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
  return elements;
}

// The main function of each test: sets the environment, and runs tests, or a rank's program.
int Main(int argc, char** argv, const char* policy);

}  // namespace pretend_gpu::nccl::testing

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TESTS_RANKS_H_
