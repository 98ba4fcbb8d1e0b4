// Each misuse ends the process with one sentence that names the ranks, the communicator and the calls.
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/tests/ranks.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu::nccl::testing {
namespace {

// Two communicators of devices 0 and 1, all in this thread: a call of one rank returns before the other's.
class Sentences : public ::testing::Test {
 protected:
  void SetUp() override {
    NCCL_OK(ncclCommInitAll(comms_, 2, nullptr));
    NCCL_OK(ncclCommInitAll(others_, 2, nullptr));
    for (int i = 0; i < 2; i++) {
      CUDA_OK(cudaSetDevice(i));
      CUDA_OK(cudaStreamCreateWithFlags(&streams_[i], CU_STREAM_NON_BLOCKING));
      memory_[i] = Upload(std::vector<int>(100, i), streams_[i]);
    }
    CUDA_OK(cudaSetDevice(0));
  }

  void TearDown() override {
    for (int i = 0; i < 2; i++) {
      CUDA_OK(cudaSetDevice(i));
      CUDA_OK(cudaStreamSynchronize(streams_[i]));
      CUDA_OK(cudaFree(memory_[i]));
      CUDA_OK(cudaStreamDestroy(streams_[i]));
      NCCL_OK(ncclCommDestroy(others_[i]));
      NCCL_OK(ncclCommDestroy(comms_[i]));
    }
    CUDA_OK(cudaSetDevice(0));
  }

  ncclResult_t AllReduce(int rank, ncclComm_t comm, std::size_t count = 10, ncclDataType_t type = ncclInt32,
                         ncclRedOp_t op = ncclSum) {
    cudaSetDevice(rank);
    return ncclAllReduce(memory_[rank], memory_[rank], count, type, op, comm, streams_[rank]);
  }
  ncclResult_t Broadcast(int rank, int root) {
    cudaSetDevice(rank);
    return ncclBcast(memory_[rank], 10, ncclInt32, root, comms_[rank], streams_[rank]);
  }
  ncclResult_t Send(int rank, int peer, std::size_t count = 10) {
    cudaSetDevice(rank);
    return ncclSend(memory_[rank], count, ncclInt32, peer, comms_[rank], streams_[rank]);
  }
  ncclResult_t Receive(int rank, int peer, std::size_t count = 10) {
    cudaSetDevice(rank);
    return ncclRecv(memory_[rank] + 50, count, ncclInt32, peer, comms_[rank], streams_[rank]);
  }

  ncclComm_t comms_[2] = {}, others_[2] = {};
  CUstream streams_[2] = {};
  int* memory_[2] = {};
  int host_[10] = {};
};

TEST_F(Sentences, CallsThatDoNotAgree) {
  EXPECT_DEATH(
      {
        AllReduce(0, comms_[0], 10);
        AllReduce(1, comms_[1], 11);
      },
      "ncclAllReduce: rank 1 calls ncclAllReduce\\(11 of ncclInt32, ncclSum\\) as collective 1 of "
      "communicator "
      "[0-9a-f]+, and rank 0 calls ncclAllReduce\\(10 of ncclInt32, ncclSum\\); ranks that meet must make "
      "the same");
  EXPECT_DEATH(
      {
        AllReduce(0, comms_[0], 10, ncclInt32);
        AllReduce(1, comms_[1], 10, ncclFloat32);
      },
      "10 of ncclFloat32.*10 of ncclInt32");
  EXPECT_DEATH(
      {
        AllReduce(0, comms_[0], 10, ncclInt32, ncclMax);
        AllReduce(1, comms_[1], 10, ncclInt32, ncclMin);
      },
      "ncclMin\\).*ncclMax\\)");
  EXPECT_DEATH(
      {
        Broadcast(1, 1);
        Broadcast(0, 0);
      },
      "rank 0 calls ncclBroadcast\\(10 of ncclInt32, root 0\\).*rank 1 calls ncclBroadcast\\(10 of "
      "ncclInt32, root 1");
  EXPECT_DEATH(
      {
        AllReduce(0, comms_[0]);
        Broadcast(1, 0);
      },
      "rank 1 calls ncclBroadcast.*rank 0 calls ncclAllReduce");
  EXPECT_DEATH(
      {
        Send(0, 1, 10);
        Receive(1, 0, 9);
      },
      "rank 1 calls ncclRecv\\(9 of ncclInt32, from rank 0\\) as send 1 from rank 0 to rank 1 in "
      "communicator .*, "
      "and rank 0 calls ncclSend\\(10 of ncclInt32, to rank 1\\)");
}

TEST_F(Sentences, TwoCommunicatorsInDifferentOrders) {
  EXPECT_DEATH(
      {
        AllReduce(0, comms_[0]);
        AllReduce(0, others_[0]);
        AllReduce(1, others_[1]);
        AllReduce(1, comms_[1]);
      },
      "rank . calls ncclAllReduce.*, collective 1 of communicator .*, before rank . calls ncclAllReduce.*; "
      "and rank "
      ". calls .*, before .*: each waits for the other; make the calls in the same order on all ranks");
}

TEST_F(Sentences, SendsThatWaitForEachOther) {
  EXPECT_DEATH(
      {
        Send(0, 1);
        Receive(0, 1);
        Send(1, 0);
        Receive(1, 0);
      },
      "rank . calls ncclSend\\(10 of ncclInt32, to rank .\\), send 1 from rank . to rank . in .*: each waits "
      "for the "
      "other");
  EXPECT_DEATH(
      {
        Send(0, 0);
        Receive(0, 0);
      },
      "rank 0 calls ncclSend.*to rank 0.* before rank 0 calls ncclRecv");
}

TEST_F(Sentences, RanksThatDoNotAgreeOnTheCommunicator) {
  const auto join = [](int ranks_of_second, int second) {
    const ncclUniqueId id = NewIds()[0];
    ncclComm_t comms[2] = {};
    ncclGroupStart();
    ncclCommInitRank(&comms[0], 2, id, 0);
    ncclCommInitRank(&comms[1], ranks_of_second, id, second);
    ncclGroupEnd();
  };
  EXPECT_DEATH(join(3, 1), "rank 1 joins communicator .* with 3 ranks, and rank 0 with 2");
  EXPECT_DEATH(join(2, 0), "rank 0 joins communicator .*, and has joined before, in process");
  EXPECT_DEATH(join(2, 2), "rank 2 of 2 ranks; a rank is from 0 to 1");
  ncclComm_t comm = nullptr;
  EXPECT_DEATH(ncclCommInitRank(&comm, 17, NewIds()[0], 0), "a communicator of 17 ranks is asked for");
  EXPECT_DEATH(ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0), "these 128 bytes are no unique id");
  EXPECT_DEATH(ncclCommInitRank(nullptr, 1, NewIds()[0], 0), "the address for the communicator is null");
}

TEST_F(Sentences, UseOfADestroyedOrAbortedCommunicator) {
  ncclComm_t comms[2] = {};
  NCCL_OK(ncclCommInitAll(comms, 2, nullptr));
  NCCL_OK(ncclCommDestroy(comms[0]));
  NCCL_OK(ncclCommAbort(comms[1]));
  EXPECT_DEATH(
      AllReduce(0, comms[0]),
      "ncclAllReduce: communicator [0-9]+ was destroyed before, by ncclCommDestroy; destroy it once");
  EXPECT_DEATH(AllReduce(1, comms[1]),
               "ncclAllReduce: communicator [0-9]+ was destroyed before, by ncclCommAbort");
  EXPECT_DEATH(ncclCommDestroy(comms[0]), "ncclCommDestroy: communicator .* was destroyed before");
  EXPECT_DEATH(AllReduce(0, nullptr), "is no communicator; pass a handle");
}

TEST_F(Sentences, TheWrongDevice) {
  EXPECT_DEATH(
      AllReduce(1, comms_[0]),
      "device 1 is current, and communicator .* \\(rank 0 of 2\\) is of device 0; make its device current");
  EXPECT_DEATH(ncclAllReduce(memory_[0], memory_[0], 1, ncclInt32, ncclSum, comms_[0], streams_[1]),
               "is of device 0, and is called on stream .*device 1\\); pass a stream of its device");
  EXPECT_DEATH(ncclAllReduce(memory_[1], memory_[1], 1, ncclInt32, ncclSum, comms_[0], streams_[0]),
               "the send buffer 0x.* is memory of device 1, and communicator .* is of device 0");
}

TEST_F(Sentences, TheWrongMemory) {
  const auto reduce = [&](const void* send, void* receive, std::size_t count) {
    ncclAllReduce(send, receive, count, ncclInt32, ncclSum, comms_[0], streams_[0]);
  };
  EXPECT_DEATH(reduce(host_, memory_[0], 10),
               "the send buffer 0x.* is pageable host memory; pass device memory");
  EXPECT_DEATH(reduce(memory_[0], host_, 10), "the receive buffer 0x.* is pageable host memory");
  EXPECT_DEATH(reduce(memory_[0], memory_[0], 101),
               "the send buffer, 404 bytes from byte 0 on, goes beyond alloc");
  EXPECT_DEATH(reduce(memory_[0], memory_[0] + 5, 10),
               "the receive buffer .* of ncclAllReduce.* overlap, and are not");
  EXPECT_DEATH(
      {
        cudaFree(memory_[0]);
        reduce(memory_[0], memory_[0], 10);
      },
      "the send buffer 0x.* is in freed memory");
  EXPECT_DEATH(
      {
        AllReduce(0, comms_[0]);
        cudaFree(memory_[0]);
      },
      "is still used by ncclAllReduce\\(10 of ncclInt32, ncclSum\\) of communicator .* \\(rank 0 of 2\\), "
      "which is "
      "not done; wait for that stream");
}

TEST_F(Sentences, TheWrongArguments) {
  EXPECT_DEATH(Broadcast(0, 2), "rank 2 is the root or the other rank of a call with communicator");
  EXPECT_DEATH(AllReduce(0, comms_[0], 1, static_cast<ncclDataType_t>(10)), "10 is no data type");
  EXPECT_DEATH(AllReduce(0, comms_[0], 1, ncclInt32, static_cast<ncclRedOp_t>(77)),
               "77 is no op of communicator");
  EXPECT_DEATH(
      {
        ncclRedOp_t op;
        ncclRedOpCreatePreMulSum(&op, host_, ncclInt32, ncclScalarHostImmediate, comms_[0]);
        AllReduce(0, comms_[0], 1, ncclFloat32, op);
      },
      "was made by ncclRedOpCreatePreMulSum for ncclInt32, and is used for ncclFloat32");
  ncclRedOp_t op;
  EXPECT_DEATH(ncclRedOpCreatePreMulSum(&op, memory_[0], ncclInt32, ncclScalarHostImmediate, comms_[0]),
               "is device memory; pass ncclScalarDevice");
  EXPECT_DEATH(ncclRedOpCreatePreMulSum(&op, host_, ncclInt32, ncclScalarDevice, comms_[0]),
               "the scalar 0x.* is pageable host memory");
  EXPECT_DEATH(ncclRedOpDestroy(ncclSum, comms_[0]), "op 0 is NCCL's own");
  EXPECT_DEATH(ncclRedOpDestroy(static_cast<ncclRedOp_t>(77), comms_[0]), "77 is no op of");
  ncclConfig_t config;
  config.magic = 0;
  ncclComm_t comm = nullptr;
  EXPECT_DEATH(ncclCommInitRankConfig(&comm, 1, NewIds()[0], 0, &config),
               "is not initialized; begin with NCCL_CON");
  EXPECT_DEATH(ncclCommSplit(comms_[0], -5, 0, &comm, nullptr), "color -5; a color is 0 or more");
  EXPECT_DEATH(ncclMemFree(memory_[0]), "is not what ncclMemAlloc returned");
  EXPECT_DEATH(ncclCommDeregister(comms_[0], memory_[0]), "is no handle of a registration");
  void* handle = nullptr;
  EXPECT_DEATH(ncclCommRegister(comms_[0], host_, 4, &handle),
               "the registered buffer 0x.* is pageable host memory");
}

TEST_F(Sentences, Groups) {
  EXPECT_DEATH(ncclGroupEnd(), "ncclGroupEnd: no group is open; call ncclGroupStart before");
  EXPECT_DEATH(std::thread([] { ncclGroupStart(); }).join(),
               "a thread ends with an open group; call ncclGroupEnd once for each");
  EXPECT_DEATH(
      {
        ncclGroupStart();
        AllReduce(0, comms_[0]);
        ncclCommDestroy(comms_[0]);
      },
      "ncclCommDestroy: communicator .* has calls in a group that is not ended");
}

TEST_F(Sentences, TwoThreadsWithOneCommunicator) {
  EXPECT_DEATH(
      {
        ncclGroupStart();
        AllReduce(0, comms_[0]);
        std::thread([&] { AllReduce(0, comms_[0]); }).join();
      },
      "another thread is in a call, or in a group that it has not ended, with communicator .*; let one "
      "thread at a");
}

TEST_F(Sentences, ACallInProgress) {
  EXPECT_DEATH(
      {
        ncclConfig_t config;
        config.blocking = 0;
        ncclComm_t comm = nullptr;
        ncclCommInitRankConfig(&comm, 2, NewIds()[0], 0, &config);
        AllReduce(0, comm);
      },
      "is still in progress, since it does not block; call ncclCommGetAsyncError until");
}

// A disagreement that one rank finds ends the others, too.
void Disagree(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  int* const memory = Upload(std::vector<int>(10), rank.stream);
  NCCL_OK(ncclAllReduce(memory, memory, 1 + rank.rank, ncclInt32, ncclSum, comm, rank.stream));
  CUDA_OK(cudaStreamSynchronize(rank.stream));
}
const Named disagree("disagree", Disagree);

TEST(SentencesOfProcesses, AllRanksEndWithIt) {
  Processes processes(2, "disagree");
  std::string errors;
  for (int rank = 0; rank < 2; rank++) {
    EXPECT_NE(0, processes.Wait(rank));
    errors += processes.Errors(rank);
    EXPECT_NE(std::string::npos, processes.Errors(rank).find("ranks that meet must make the same call"))
        << errors;
  }
  EXPECT_NE(std::string::npos, errors.find("another rank has found: rank "));
}

}  // namespace
}  // namespace pretend_gpu::nccl::testing

int main(int argc, char** argv) { return pretend_gpu::nccl::testing::Main(argc, argv, "prompt"); }
