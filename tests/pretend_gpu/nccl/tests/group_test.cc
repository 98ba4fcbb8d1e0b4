// Groups, calls between two ranks, several streams, and the making of communicators, with ranks as threads
// and as processes.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/tests/ranks.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu::nccl::testing {
namespace {

constexpr std::size_t kCount = 100;

std::vector<int> Filled(int value) { return std::vector<int>(kCount, value); }

// Each rank sends to the next one, and receives from the one before.
void Ring(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  const int next = (rank.rank + 1) % rank.ranks, before = (rank.rank + rank.ranks - 1) % rank.ranks;
  int* const sent = Upload(Filled(rank.rank), rank.stream);
  int* const received = Upload(Filled(-1), rank.stream);
  for (int round = 0; round < 5; round++) {
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(sent, kCount, ncclInt32, next, comm, rank.stream));
    NCCL_OK(ncclRecv(received, kCount, ncclInt32, before, comm, rank.stream));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(Filled(before), Download(received, kCount, rank.stream));
  }
  CUDA_OK(cudaFree(sent));
  CUDA_OK(cudaFree(received));
  NCCL_OK(ncclCommDestroy(comm));
}
const Named ring("ring", Ring);

TEST(PointToPoint, ARingInAGroup) {
  for (int ranks = 1; ranks <= 4; ranks++) RunThreads(ranks, Ring);
}

// Rank 0 sends twice to each other rank, which answers; no group is needed where the orders fit.
void Answers(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  int* const memory = Upload(Filled(rank.rank), rank.stream);
  for (int peer = 1; peer < rank.ranks; peer++) {
    if (rank.rank == 0) {
      NCCL_OK(ncclSend(memory, 1, ncclInt32, peer, comm, rank.stream));
      NCCL_OK(ncclSend(memory, 2, ncclInt32, peer, comm, rank.stream));
      NCCL_OK(ncclRecv(memory + peer, 1, ncclInt32, peer, comm, rank.stream));
    } else if (rank.rank == peer) {
      NCCL_OK(ncclRecv(memory + 10, 1, ncclInt32, 0, comm, rank.stream));
      NCCL_OK(ncclRecv(memory + 11, 2, ncclInt32, 0, comm, rank.stream));
      NCCL_OK(ncclSend(memory, 1, ncclInt32, 0, comm, rank.stream));
    }
  }
  const auto values = Download(memory, kCount, rank.stream);
  if (rank.rank == 0) {
    for (int peer = 1; peer < rank.ranks; peer++) EXPECT_EQ(peer, values[peer]);
  } else {
    EXPECT_EQ(0, values[10]);
    EXPECT_EQ(rank.rank, values[13]);
  }
  CUDA_OK(cudaFree(memory));
  NCCL_OK(ncclCommDestroy(comm));
}
const Named answers("answers", Answers);

TEST(PointToPoint, SendsAndReceivesMeetInOrder) { RunThreads(4, Answers); }

// A group with collectives of two communicators, on two streams each.
void Streams(Rank& rank) {
  const ncclComm_t comms[] = {rank.Join(0), rank.Join(1)};
  CUstream other = nullptr;
  CUDA_OK(cudaStreamCreateWithFlags(&other, CU_STREAM_NON_BLOCKING));
  int* const memory = Upload(Filled(rank.rank + 1), rank.stream);
  CUDA_OK(cudaStreamSynchronize(rank.stream));
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    int* const at = memory + 50 * i;
    NCCL_OK(ncclAllReduce(at, at, 10, ncclInt32, ncclSum, comms[i], rank.stream));
    NCCL_OK(ncclAllReduce(at + 10, at + 10, 10, ncclInt32, ncclMax, comms[i], other));
  }
  NCCL_OK(ncclGroupEnd());
  NCCL_OK(ncclGroupEnd());
  // A group is one operation of all its streams, so each of them waits for all of it.
  const auto values = Download(memory, kCount, rank.rank % 2 == 0 ? other : rank.stream);
  const int sum = rank.ranks * (rank.ranks + 1) / 2;
  for (const int at : {0, 50}) {
    EXPECT_EQ(sum, values[at]);
    EXPECT_EQ(rank.ranks, values[at + 10]);
    EXPECT_EQ(rank.rank + 1, values[at + 20]);
  }
  CUDA_OK(cudaStreamSynchronize(rank.stream));
  CUDA_OK(cudaStreamSynchronize(other));
  CUDA_OK(cudaStreamDestroy(other));
  CUDA_OK(cudaFree(memory));
  for (const ncclComm_t comm : comms) {
    NCCL_OK(ncclCommFinalize(comm));
    NCCL_OK(ncclCommDestroy(comm));
  }
}
const Named streams("streams", Streams);

TEST(Group, SeveralCommunicatorsAndStreams) {
  for (const char* policy : {"random", "prompt", "lazy"}) {
    SCOPED_TRACE(policy);
    pretend_gpu_set_policy(policy);
    RunThreads(3, Streams);
  }
  pretend_gpu_set_policy("random");
}

TEST(PointToPoint, ARingInAGroupOfProcesses) { RunProcesses(3, "ring"); }
TEST(PointToPoint, ProcessesMeetInOrder) { RunProcesses(3, "answers"); }
TEST(Group, SeveralCommunicatorsAndStreamsOfProcesses) { RunProcesses(2, "streams"); }

TEST(Group, OneThreadHasAllDevices) {
  std::vector<ncclComm_t> comms(4);
  const int devices[] = {3, 1, 0, 2};
  NCCL_OK(ncclCommInitAll(comms.data(), 4, devices));
  std::vector<int*> memory(4);
  std::vector<CUstream> all(4);
  for (int i = 0; i < 4; i++) {
    int device = -1, rank = -1, count = -1;
    NCCL_OK(ncclCommCuDevice(comms[i], &device));
    NCCL_OK(ncclCommUserRank(comms[i], &rank));
    NCCL_OK(ncclCommCount(comms[i], &count));
    EXPECT_EQ(devices[i], device);
    EXPECT_EQ(i, rank);
    EXPECT_EQ(4, count);
    CUDA_OK(cudaSetDevice(device));
    CUDA_OK(cudaStreamCreate(&all[i]));
    memory[i] = Upload(Filled(i), all[i]);
  }
  CUDA_OK(cudaSetDevice(0));
  NCCL_OK(ncclGroupStart());
  for (int i = 0; i < 4; i++) {
    NCCL_OK(ncclAllReduce(memory[i], memory[i], kCount, ncclInt32, ncclSum, comms[i], all[i]));
  }
  NCCL_OK(ncclGroupEnd());
  for (int i = 0; i < 4; i++) {
    CUDA_OK(cudaSetDevice(devices[i]));
    EXPECT_EQ(Filled(6), Download(memory[i], kCount, all[i]));
    CUDA_OK(cudaFree(memory[i]));
    NCCL_OK(ncclCommDestroy(comms[i]));
    CUDA_OK(cudaStreamDestroy(all[i]));
  }
  CUDA_OK(cudaSetDevice(0));
}

TEST(Group, OneThreadMakesTheCommunicatorsOfAllDevices) {
  const ncclUniqueId id = NewIds()[0];
  std::vector<ncclComm_t> comms(3), halves(3);
  NCCL_OK(ncclGroupStart());
  for (int i = 0; i < 3; i++) {
    CUDA_OK(cudaSetDevice(i));
    NCCL_OK(ncclCommInitRank(&comms[i], 3, id, i));
  }
  NCCL_OK(ncclGroupEnd());
  NCCL_OK(ncclGroupStart());
  for (int i = 0; i < 3; i++) NCCL_OK(ncclCommSplit(comms[i], i == 1 ? 7 : 2, -i, &halves[i], nullptr));
  NCCL_OK(ncclGroupEnd());
  for (int i = 0; i < 3; i++) {
    int rank = -1, count = -1;
    NCCL_OK(ncclCommUserRank(halves[i], &rank));
    NCCL_OK(ncclCommCount(halves[i], &count));
    EXPECT_EQ(i == 1 ? 1 : 2, count);
    EXPECT_EQ(i == 0 ? 1 : 0, rank);  // rank 2 has the smaller key
    NCCL_OK(ncclCommDestroy(halves[i]));
    NCCL_OK(ncclCommDestroy(comms[i]));
  }
  CUDA_OK(cudaSetDevice(0));
}

// Even ranks and odd ones, in the opposite order; the last rank gets no communicator.
void Split(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  const bool none = rank.rank == rank.ranks - 1;
  ncclComm_t half = nullptr;
  NCCL_OK(ncclCommSplit(comm, none ? NCCL_SPLIT_NOCOLOR : rank.rank % 2, -rank.rank, &half, nullptr));
  EXPECT_EQ(none, half == nullptr);
  int* const memory = Upload(Filled(rank.rank), rank.stream);
  if (!none) {
    const int ranks = (rank.ranks - 1 + (rank.rank % 2 == 0 ? 1 : 0)) / 2;
    int its_rank = -1, count = -1;
    NCCL_OK(ncclCommUserRank(half, &its_rank));
    NCCL_OK(ncclCommCount(half, &count));
    EXPECT_EQ(ranks, count);
    EXPECT_EQ(ranks - 1 - rank.rank / 2, its_rank);
    NCCL_OK(ncclBroadcast(memory, memory, kCount, ncclInt32, 0, half, rank.stream));
    EXPECT_EQ(Filled(2 * (ranks - 1) + rank.rank % 2), Download(memory, kCount, rank.stream));
  }
  NCCL_OK(ncclBroadcast(memory, memory, 1, ncclInt32, 0, comm, rank.stream));
  NCCL_OK(ncclCommDestroy(comm));  // waits for the broadcast
  NCCL_OK(ncclCommDestroy(half));
  CUDA_OK(cudaFree(memory));
}
const Named split("split", Split);

TEST(Communicator, IsSplit) {
  for (int ranks = 2; ranks <= 4; ranks++) RunThreads(ranks, Split);
}

// Makes progress as a program has to: it asks until the call is no longer in progress.
void Progress(ncclComm_t comm) {
  ncclResult_t error = ncclInProgress;
  while (error == ncclInProgress) NCCL_OK(ncclCommGetAsyncError(comm, &error));
  EXPECT_EQ(ncclSuccess, error);
}

void NonBlocking(Rank& rank) {
  ncclConfig_t config;
  config.blocking = 0;
  ncclComm_t comm = nullptr, half = nullptr;
  ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comm, rank.ranks, rank.ids[0], rank.rank, &config));
  Progress(comm);
  int* const memory = Upload(Filled(1), rank.stream);
  ASSERT_EQ(ncclInProgress, ncclAllReduce(memory, memory, kCount, ncclInt32, ncclSum, comm, rank.stream));
  // It is not on the stream yet.
  EXPECT_EQ(Filled(1), Download(memory, kCount, rank.stream));
  Progress(comm);
  EXPECT_EQ(Filled(rank.ranks), Download(memory, kCount, rank.stream));
  ASSERT_EQ(ncclInProgress, ncclCommSplit(comm, 0, 0, &half, nullptr));
  Progress(half);
  CUDA_OK(cudaFree(memory));
  NCCL_OK(ncclCommDestroy(half));
  NCCL_OK(ncclCommDestroy(comm));
}
const Named non_blocking("non_blocking", NonBlocking);

TEST(Communicator, ThatDoesNotBlock) { RunThreads(2, NonBlocking); }

TEST(Communicator, OfProcessesIsSplit) { RunProcesses(4, "split"); }
TEST(Communicator, OfProcessesThatDoesNotBlock) { RunProcesses(2, "non_blocking"); }

// NCCL refuses two ranks with one device.
void SameDevice(Rank& rank) {
  CUDA_OK(cudaSetDevice(0));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclInvalidUsage, ncclCommInitRank(&comm, rank.ranks, rank.ids[0], rank.rank));
  EXPECT_EQ(nullptr, comm);
  EXPECT_NE(std::string::npos,
            std::string(ncclGetLastError(nullptr)).find("ranks 0 and 1 both use device 0; give each rank"));
  CUDA_OK(cudaSetDevice(rank.rank));
}

TEST(Communicator, TwoRanksWithOneDeviceAreRefused) { RunThreads(2, SameDevice); }

TEST(Communicator, ManyAreMadeAndDestroyed) {
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    for (int i = 0; i < 50; i++) {
      ncclComm_t same = nullptr;
      NCCL_OK(ncclCommSplit(comm, 0, 0, &same, nullptr));
      NCCL_OK(ncclCommDestroy(same));
    }
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Memory, IsAllocatedAndRegistered) {
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    void* memory = nullptr;
    void* handle = nullptr;
    NCCL_OK(ncclMemAlloc(&memory, 400));
    NCCL_OK(ncclCommRegister(comm, memory, 400, &handle));
    NCCL_OK(ncclBcast(memory, 400, ncclUint8, 0, comm, rank.stream));
    CUDA_OK(cudaStreamSynchronize(rank.stream));
    NCCL_OK(ncclCommDeregister(comm, handle));
    NCCL_OK(ncclMemFree(memory));
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Memory, MayBePinned) {
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    int* memory = nullptr;
    CUDA_OK(cudaMallocHost(reinterpret_cast<void**>(&memory), sizeof(int)));
    *memory = rank.rank + 5;
    NCCL_OK(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, rank.stream));
    CUDA_OK(cudaStreamSynchronize(rank.stream));
    EXPECT_EQ(11, *memory);
    CUDA_OK(cudaFreeHost(memory));
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Memory, TheScalarOfAPreMulSumIsReadWhenTheStreamGetsThere) {
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    ncclRedOp_t op;
    int* const memory = Upload(Filled(1), rank.stream);
    int* const factor = Upload(std::vector<int>{0}, rank.stream);
    CUDA_OK(cudaStreamSynchronize(rank.stream));
    NCCL_OK(ncclRedOpCreatePreMulSum(&op, factor, ncclInt32, ncclScalarDevice, comm));
    const int its_factor = rank.rank + 3;  // each rank has its own
    CUDA_OK(cudaMemcpyAsync(factor, &its_factor, sizeof(int), cudaMemcpyHostToDevice, rank.stream));
    NCCL_OK(ncclAllReduce(memory, memory, kCount, ncclInt32, op, comm, rank.stream));
    EXPECT_EQ(Filled(7), Download(memory, kCount, rank.stream));
    NCCL_OK(ncclRedOpDestroy(op, comm));
    CUDA_OK(cudaFree(memory));
    CUDA_OK(cudaFree(factor));
    NCCL_OK(ncclCommDestroy(comm));
  });
}

TEST(Texts, OfVersionAndErrors) {
  int version = 0;
  NCCL_OK(ncclGetVersion(&version));
  EXPECT_EQ(22105, version);
  EXPECT_STREQ("no error", ncclGetErrorString(ncclSuccess));
  EXPECT_NE(nullptr, ncclGetErrorString(static_cast<ncclResult_t>(99)));
}

}  // namespace
}  // namespace pretend_gpu::nccl::testing

int main(int argc, char** argv) { return pretend_gpu::nccl::testing::Main(argc, argv, "random"); }
