// The effects of the variables of the environment. Each case is a process of its own, since they are read
// once.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/tests/ranks.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu::nccl::testing {
namespace {

// Two communicators of devices 0 and 1 in one thread.
struct Both {
  Both() {
    ncclCommInitAll(comms, 2, nullptr);
    ncclCommInitAll(others, 2, nullptr);
    for (int i = 0; i < 2; i++) {
      cudaSetDevice(i);
      cudaStreamCreateWithFlags(&streams[i], CU_STREAM_NON_BLOCKING);
      cudaStreamCreateWithFlags(&other_streams[i], CU_STREAM_NON_BLOCKING);
      memory[i] = Upload(std::vector<int>(100, i), streams[i]);
    }
  }
  void AllReduce(int rank, bool other, CUstream stream) {
    cudaSetDevice(rank);
    int* const at = memory[rank] + (other ? 10 : 0);
    ncclAllReduce(at, at, 10, ncclInt32, ncclSum, (other ? others : comms)[rank], stream);
  }

  ncclComm_t comms[2] = {}, others[2] = {};
  CUstream streams[2] = {}, other_streams[2] = {};
  int* memory[2] = {};
};

// Waits for the end of a process, and returns its sentence, or "" if it ends well.
std::string SentenceOf(Processes* processes) {
  const int status = processes->Wait(0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
  return processes->Errors(0);
}

std::string Sentence(const char* program, const std::vector<std::string>& variables) {
  Processes processes(1, program, variables);
  return SentenceOf(&processes);
}

void ExpectSentence(const char* pattern, const std::string& said) {
  EXPECT_TRUE(::testing::internal::RE::PartialMatch(said, std::string(pattern))) << "it said: " << said;
}

const Named one_waits("one_waits", [](Rank&) {
  Both both;
  both.AllReduce(0, false, both.streams[0]);
  cudaStreamSynchronize(both.streams[0]);
});
const Named group_is_open("group_is_open", [](Rank&) {
  Both both;
  both.AllReduce(0, false, both.streams[0]);
  ncclGroupStart();
  both.AllReduce(1, false, both.streams[1]);
  cudaStreamSynchronize(both.streams[0]);
});
const Named stream_is_behind("stream_is_behind", [](Rank&) {
  Both both;
  both.AllReduce(0, false, both.streams[0]);
  both.AllReduce(1, true, both.streams[1]);
  both.AllReduce(1, false, both.streams[1]);
  cudaStreamSynchronize(both.streams[0]);
});
const Named nobody_comes("nobody_comes", [](Rank&) {
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, 3, NewIds()[0], 1);
});

TEST(Limit, NamesWhatEachRankWaitsFor) {
  const std::vector<std::string> limit{"PRETEND_GPU_NCCL_LIMIT_S=1"};
  Processes one(1, "one_waits", limit), open(1, "group_is_open", limit), behind(1, "stream_is_behind", limit),
      nobody(1, "nobody_comes", limit);
  ExpectSentence(
      "rank 0 has waited for 1 s \\(PRETEND_GPU_NCCL_LIMIT_S\\): in ncclAllReduce.*, collective 1 of "
      "communicator "
      "[0-9a-f]+, rank 1 has not made its call, nor one before\\.",
      SentenceOf(&one));
  ExpectSentence(
      "rank 1 has not made its call, nor one before; it has 1 calls in a group that it has not ended",
      SentenceOf(&open));
  // Whoever of the two comes to the limit first.
  ExpectSentence(
      "rank 1 has made its call, but its stream has not come to it; it waits in ncclAllReduce.*, collective "
      "1 of "
      "communicator|rank 0 has not made its call, nor one before; it waits in ncclAllReduce.*, collective 1 "
      "of",
      SentenceOf(&behind));
  ExpectSentence(
      "ncclCommInitRank: rank 1 has waited for 1 s .* for all ranks to join communicator .*; these have not "
      "called "
      "ncclCommInitRank, or have given up: rank 0 rank 2",
      SentenceOf(&nobody));
}

// Each rank calls the collectives of two communicators in an order of its own, on a stream for each.
const Named two_orders("two_orders", [](Rank&) {
  Both both;
  for (int rank = 0; rank < 2; rank++) {
    for (const bool other : {rank == 0, rank != 0}) {
      both.AllReduce(rank, other, (other ? both.other_streams : both.streams)[rank]);
    }
  }
  for (const CUstream stream : both.other_streams) cudaStreamSynchronize(stream);
  for (int rank = 0; rank < 2; rank++) {
    EXPECT_EQ(std::vector<int>(20, 1), Download(both.memory[rank], 20, both.streams[rank]));
  }
});
const Named two_orders_on_a_stream("two_orders_on_a_stream", [](Rank&) {
  Both both;
  for (int rank = 0; rank < 2; rank++) {
    for (const bool other : {rank == 0, rank != 0}) both.AllReduce(rank, other, both.streams[rank]);
  }
});

TEST(Concurrent, OnlyOrdersOnAStreamCount) {
  const std::vector<std::string> concurrent{"PRETEND_GPU_NCCL_CONCURRENT=1"};
  ExpectSentence("each waits for the other", Sentence("two_orders", {}));
  EXPECT_EQ("", Sentence("two_orders", concurrent));
  ExpectSentence("each waits for the other", Sentence("two_orders_on_a_stream", concurrent));
}

// All make the calls in one order, but rank 1's stream comes to the first one late.
const Named late_stream("late_stream", [](Rank&) {
  Both both;
  std::promise<void> second_is_on_the_device;
  const auto wait = [](void* promise) { static_cast<std::promise<void>*>(promise)->get_future().wait(); };
  cudaLaunchHostFunc(both.streams[1], wait, &second_is_on_the_device);
  for (int rank = 0; rank < 2; rank++) both.AllReduce(rank, false, both.streams[rank]);
  usleep(100'000);
  for (int rank = 0; rank < 2; rank++) both.AllReduce(rank, true, both.other_streams[rank]);
  usleep(100'000);
  second_is_on_the_device.set_value();
  for (int rank = 0; rank < 2; rank++) {
    cudaStreamSynchronize(both.other_streams[rank]);
    EXPECT_EQ(std::vector<int>(20, 1), Download(both.memory[rank], 20, both.streams[rank]));
  }
});

TEST(Room, ForOneCommunicatorNeedsOneOrderOnEachDevice) {
  const std::vector<std::string> prompt{"PRETEND_GPU_POLICY=prompt"};
  EXPECT_EQ("", Sentence("late_stream", prompt));
  ExpectSentence("has waited for 1 s",
                 Sentence("late_stream", {"PRETEND_GPU_POLICY=prompt", "PRETEND_GPU_NCCL_LIMIT_S=1",
                                          "PRETEND_GPU_NCCL_ROOM=1"}));
}

std::size_t FreeMegabytes() {
  std::size_t free_bytes = 0, all_bytes = 0;
  cuMemGetInfo_v2(&free_bytes, &all_bytes);
  return free_bytes >> 20;
}

// A program's own memory leaves 34 MiB on device 0 at first, of 64, and then more.
const Named memory_is_short("memory_is_short", [](Rank&) {
  void* own = nullptr;
  cudaSetDevice(0);
  CUDA_OK(cudaMalloc(&own, 30 << 20));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclUnhandledCudaError, ncclCommInitAll(&comm, 1, nullptr));
  EXPECT_STREQ("Failed to CUDA calloc 41943040 bytes", ncclGetLastError(nullptr));
  EXPECT_EQ(33u, FreeMegabytes());  // each allocation has a guard behind it
  CUDA_OK(cudaFree(own));
  NCCL_OK(ncclCommInitAll(&comm, 1, nullptr));
  EXPECT_EQ(23u, FreeMegabytes());

  CUDA_OK(cudaMalloc(&own, 10 << 20));
  const auto send_to_self = [&] {
    ncclGroupStart();
    ncclSend(own, 10, ncclInt32, 0, comm, nullptr);
    ncclRecv(static_cast<int*>(own) + 10, 10, ncclInt32, 0, comm, nullptr);
    return ncclGroupEnd();
  };
  EXPECT_EQ(ncclUnhandledCudaError, send_to_self());
  NCCL_OK(ncclCommAbort(comm));
  EXPECT_EQ(53u, FreeMegabytes());
  CUDA_OK(cudaFree(own));

  CUDA_OK(cudaMalloc(&own, 1 << 20));
  NCCL_OK(ncclCommInitAll(&comm, 1, nullptr));
  for (int i = 0; i < 2; i++) NCCL_OK(send_to_self());
  CUDA_OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(2u, FreeMegabytes());
  NCCL_OK(ncclCommDestroy(comm));
  EXPECT_EQ(62u, FreeMegabytes());
});

TEST(Memory, IsTakenFromTheDevice) {
  EXPECT_EQ("", Sentence("memory_is_short", {"PRETEND_GPU_MEMORY_MB=64", "PRETEND_GPU_NCCL_MEMORY_MB=40",
                                             "PRETEND_GPU_NCCL_PEER_MEMORY_MB=20"}));
}

const Named leaves_one("leaves_one", [](Rank&) {
  Both both;
  for (const ncclComm_t comm : {both.comms[0], both.others[0], both.others[1]}) ncclCommDestroy(comm);
});
const Named leaves_none("leaves_none", [](Rank&) {
  Both both;
  for (const ncclComm_t comm : {both.comms[0], both.comms[1], both.others[0], both.others[1]})
    ncclCommAbort(comm);
});

TEST(Leaks, EndTheProcessAtExit) {
  const std::vector<std::string> leaks{"PRETEND_GPU_NCCL_LEAKS=1"};
  ExpectSentence(
      "1 communicators are left at exit, one of them communicator .* \\(rank 1 of 2\\); destroy or abort",
      Sentence("leaves_one", leaks));
  EXPECT_EQ("", Sentence("leaves_one", {}));
  EXPECT_EQ("", Sentence("leaves_none", leaks));
}

// Rank 1 waits for its stream; rank 0 does not, and its stream stays lazy for as long as the setting says.
const Named one_is_lazy("one_is_lazy", [](Rank&) {
  Both both;
  for (int rank = 0; rank < 2; rank++) both.AllReduce(rank, false, both.streams[rank]);
  std::thread waiting([&] { CUDA_OK(cudaStreamSynchronize(both.streams[1])); });
  usleep(50'000);
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cudaStreamQuery(both.streams[0]));
  CUDA_OK(cudaStreamSynchronize(both.streams[0]));
  waiting.join();
});

TEST(Peers, DoNotWakeALazyStreamTooEarly) {
  EXPECT_EQ("", Sentence("one_is_lazy", {"PRETEND_GPU_POLICY=lazy", "PRETEND_GPU_NCCL_PEERS_US=3600000000"}));
}

// The same number names another device on another host.
const Named on_hosts("on_hosts", [](Rank& rank) {
  setenv("NCCL_HOSTID", std::to_string(rank.rank).c_str(), 1);
  CUDA_OK(cudaSetDevice(0));
  const ncclComm_t comm = rank.Join();
  NCCL_OK(ncclCommDestroy(comm));
});

TEST(Hosts, HaveDevicesOfTheirOwn) { RunProcesses(2, "on_hosts"); }

TEST(Settings, ThatCannotBeRead) {
  ExpectSentence("PRETEND_GPU_NCCL_FAIL is '1', and must be a rank and a number of a call from 1 on",
                 Sentence("leaves_none", {"PRETEND_GPU_NCCL_FAIL=1"}));
  ExpectSentence("PRETEND_GPU_NCCL_LIMIT_S is 'x', and must be a whole number",
                 Sentence("leaves_none", {"PRETEND_GPU_NCCL_LIMIT_S=x"}));
}

}  // namespace
}  // namespace pretend_gpu::nccl::testing

int main(int argc, char** argv) { return pretend_gpu::nccl::testing::Main(argc, argv, "prompt"); }
