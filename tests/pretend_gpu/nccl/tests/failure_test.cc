// Aborts, ranks that die, and calls that fail.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/tests/ranks.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu::nccl::testing {
namespace {

constexpr std::size_t kCount = 100;
const std::vector<int> kPoison(kCount, -1);

// Returns the error when there is one, or success after a while.
ncclResult_t AwaitError(ncclComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ncclSuccess, ncclCommGetAsyncError(comm, &error));
  }
  return error;
}

// Only rank 0 calls, and aborts; then the stream goes on, with poison in the buffer.
void Abort(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  int* const memory = Upload(std::vector<int>(kCount, 1), rank.stream);
  if (rank.rank == 0) {
    NCCL_OK(ncclAllReduce(memory, memory, kCount, ncclInt32, ncclSum, comm, rank.stream));
    NCCL_OK(ncclBcast(memory, 1, ncclInt32, 0, comm, rank.stream));  // queued behind it
    usleep(5000);
    EXPECT_NE(cudaSuccess, cudaStreamQuery(rank.stream));
  }
  NCCL_OK(ncclCommAbort(comm));
  EXPECT_EQ(rank.rank == 0 ? kPoison : std::vector<int>(kCount, 1), Download(memory, kCount, rank.stream));
  CUDA_OK(cudaFree(memory));
}
const Named abort_program("abort", Abort);

TEST(Abort, EndsAKernelThatWaits) {
  for (const char* policy : {"prompt", "random", "lazy"}) {
    SCOPED_TRACE(policy);
    pretend_gpu_set_policy(policy);
    RunThreads(2, Abort);
  }
}

TEST(Abort, EndsAKernelOfAProcess) { RunProcesses(2, "abort"); }

// Rank 1 ends its communicator while rank 0 waits for it: rank 0's call ends well, with poison.
void Spoil(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  int* const memory = Upload(std::vector<int>(kCount, 1), rank.stream);
  if (rank.rank == 0) {
    NCCL_OK(ncclAllReduce(memory, memory, kCount, ncclInt32, ncclSum, comm, rank.stream));
    EXPECT_EQ(kPoison, Download(memory, kCount, rank.stream));
  } else {
    usleep(5000);
  }
  const auto begin = std::chrono::steady_clock::now();
  NCCL_OK(ncclCommAbort(comm));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
  CUDA_OK(cudaFree(memory));
}
const Named spoil("spoil", Spoil);

TEST(Abort, SpoilsWhatAnotherRankReadsIfTheSettingSaysSo) {
  Processes processes(2, "spoil", {"PRETEND_GPU_NCCL_SPOIL=1", "PRETEND_GPU_NCCL_ABORT_MS=100"});
  for (int rank = 0; rank < 2; rank++) EXPECT_EQ(0, processes.Wait(rank)) << processes.Errors(rank);
}

// Another thread waits for the stream meanwhile, as a program does that watches it.
TEST(Abort, WakesWhoWaitsForTheStream) {
  pretend_gpu_set_policy("prompt");
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    int* const memory = Upload(std::vector<int>(kCount, 1), rank.stream);
    if (rank.rank == 1) {
      NCCL_OK(ncclGroupStart());
      NCCL_OK(ncclSend(memory, 10, ncclInt32, 0, comm, rank.stream));
      NCCL_OK(ncclRecv(memory + 50, 10, ncclInt32, 0, comm, rank.stream));
      NCCL_OK(ncclGroupEnd());
      std::thread waiting([&] { EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(rank.stream)); });
      usleep(5000);
      NCCL_OK(ncclCommAbort(comm));
      waiting.join();
      const auto values = Download(memory, kCount, rank.stream);
      EXPECT_EQ(1, values[0]);
      EXPECT_EQ(-1, values[50]);
      EXPECT_EQ(1, values[60]);
    } else {
      NCCL_OK(ncclCommAbort(comm));
    }
    CUDA_OK(cudaFree(memory));
  });
}

TEST(Abort, EndsTheMakingOfACommunicator) {
  ncclConfig_t config;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comm, 2, NewIds()[0], 0, &config));
  ncclResult_t error = ncclSuccess;
  NCCL_OK(ncclCommGetAsyncError(comm, &error));
  EXPECT_EQ(ncclInProgress, error);
  NCCL_OK(ncclCommAbort(comm));
}

TEST(Abort, EndsASplit) {
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    if (rank.rank == 0) {
      ncclConfig_t config;
      config.blocking = 0;
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclInProgress, ncclCommSplit(comm, 0, 0, &child, &config));
      NCCL_OK(ncclCommAbort(child));
    }
    NCCL_OK(ncclCommAbort(comm));
  });
}

// A call that was still in progress uses its memory no more, whatever the stream has yet to come to.
TEST(Abort, DropsACallThatHasNotReachedItsStream) {
  pretend_gpu_set_policy("lazy");
  RunThreads(1, [](Rank& rank) {
    ncclConfig_t config;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ncclResult_t error = ncclInProgress;
    ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comm, 1, rank.ids[0], 0, &config));
    while (error == ncclInProgress) NCCL_OK(ncclCommGetAsyncError(comm, &error));
    int* const first = Upload(std::vector<int>(kCount, 1), rank.stream);
    int* const second = Upload(std::vector<int>(kCount, 1), rank.stream);
    CUDA_OK(cudaStreamSynchronize(rank.stream));
    EXPECT_EQ(ncclInProgress, ncclBcast(first, kCount, ncclInt32, 0, comm, rank.stream));
    NCCL_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(ncclInProgress, ncclBcast(second, kCount, ncclInt32, 0, comm, rank.stream));
    NCCL_OK(ncclCommAbort(comm));
    CUDA_OK(cudaFree(second));
    CUDA_OK(cudaStreamSynchronize(rank.stream));
    CUDA_OK(cudaFree(first));
  });
}

// Rank 1 dies; the others learn of it, their kernels wait until the abort, and new calls are refused.
void Death(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  int* const memory = Upload(std::vector<int>(kCount, 1), rank.stream);
  NCCL_OK(ncclAllReduce(memory, memory, kCount, ncclInt32, ncclSum, comm, rank.stream));
  EXPECT_EQ(std::vector<int>(kCount, rank.ranks), Download(memory, kCount, rank.stream));
  if (rank.rank == 1) raise(SIGKILL);
  NCCL_OK(ncclAllReduce(memory, memory, kCount, ncclInt32, ncclSum, comm, rank.stream));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ncclRemoteError, AwaitError(comm));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_NE(std::string::npos, std::string(ncclGetLastError(comm)).find(", process "));
  EXPECT_EQ(ncclRemoteError, ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, rank.stream));
  EXPECT_NE(cudaSuccess, cudaStreamQuery(rank.stream));
  NCCL_OK(ncclCommAbort(comm));
  EXPECT_EQ(kPoison, Download(memory, kCount, rank.stream));
  CUDA_OK(cudaFree(memory));
}
const Named death("death", Death);

TEST(Death, OfARankIsAnAsyncErrorOfTheOthers) {
  Processes processes(3, "death");
  EXPECT_TRUE(WIFSIGNALED(processes.Wait(1)));
  for (const int rank : {0, 2}) EXPECT_EQ(0, processes.Wait(rank)) << processes.Errors(rank);
}

// Rank 1 dies before it joins; or after, while rank 2 is not there yet.
void DeathBefore(Rank& rank) {
  if (rank.rank == 2) {
    usleep(60'000'000);
    return;
  }
  if (rank.rank == 1) {
    std::thread([] {
      usleep(200'000);
      raise(SIGKILL);
    }).detach();
  }
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclRemoteError, ncclCommInitRank(&comm, rank.ranks, rank.ids[0], rank.rank));
  EXPECT_EQ(nullptr, comm);
}
const Named death_before("death_before", DeathBefore);

TEST(Death, OfARankThatHasJoinedEndsTheMaking) {
  Processes processes(3, "death_before");
  processes.Wait(1);
  EXPECT_EQ(0, processes.Wait(0)) << processes.Errors(0);
}

// The id of a process that has ended is of no use.
const Named makes_id("makes_id", [](Rank&) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  EXPECT_EQ(static_cast<ssize_t>(sizeof(id)), write(STDERR_FILENO, &id, sizeof(id)));
});

TEST(Death, OfWhoMadeTheIdIsASystemError) {
  Processes processes(1, "makes_id");
  EXPECT_EQ(0, processes.Wait(0));
  const std::string bytes = processes.Errors(0);
  ncclUniqueId id;
  ASSERT_EQ(sizeof(id), bytes.size());
  bytes.copy(id.internal, sizeof(id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclSystemError, ncclCommInitRank(&comm, 1, id, 0));
}

// The third call of rank 1 fails. Its kernel and the others' wait until the abort.
void Failure(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  int* const memory = Upload(std::vector<int>(kCount, 1), rank.stream);
  for (int call = 1; call <= 3; call++) {
    NCCL_OK(ncclAllReduce(memory, memory, kCount, ncclInt32, ncclMax, comm, rank.stream));
    if (call == 3) break;
    EXPECT_EQ(std::vector<int>(kCount, 1), Download(memory, kCount, rank.stream));
    if (rank.rank != 1) continue;  // they may know of the failure now already
    ncclResult_t error = ncclInternalError;
    NCCL_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(ncclSuccess, error);
  }
  EXPECT_EQ(rank.rank == 1 ? ncclSystemError : ncclRemoteError, AwaitError(comm));
  EXPECT_NE(cudaSuccess, cudaStreamQuery(rank.stream));
  NCCL_OK(ncclCommAbort(comm));
  EXPECT_EQ(kPoison, Download(memory, kCount, rank.stream));
  CUDA_OK(cudaFree(memory));
}
const Named failure("failure", Failure);

TEST(Failure, OfTheCallThatTheSettingNames) {
  Processes processes(3, "failure", {"PRETEND_GPU_NCCL_FAIL=1:3", "PRETEND_GPU_POLICY=prompt"});
  for (int rank = 0; rank < 3; rank++) EXPECT_EQ(0, processes.Wait(rank)) << processes.Errors(rank);
}

}  // namespace
}  // namespace pretend_gpu::nccl::testing

int main(int argc, char** argv) { return pretend_gpu::nccl::testing::Main(argc, argv, "prompt"); }
