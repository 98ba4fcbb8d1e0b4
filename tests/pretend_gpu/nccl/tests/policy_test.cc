// Which policy finds which missing wait around a collective.
//
// Each rank computes x on one stream, the sum of all x on another one, and takes the sum on the first again.
// An event orders each change of streams. Each wait is left out.
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/tests/ranks.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu::nccl::testing {
namespace {

constexpr int kCount = 100, kTrials = 10, kRanks = 2;

enum class Found { kNever, kAlways, kByChance };

struct Case {
  const char* policy;
  Found comm_does_not_wait;     // for the compute stream
  Found compute_does_not_wait;  // for the communication stream
};

// README.md has this table, too.
const Case kCases[] = {
    {"prompt", Found::kNever, Found::kByChance},
    {"random", Found::kByChance, Found::kByChance},
    {"compute=lazy,comm=prompt", Found::kAlways, Found::kByChance},
    {"compute=prompt,comm=lazy", Found::kNever, Found::kAlways},
    {"lazy", Found::kNever, Found::kAlways},
};

// The threads of the ranks share these, which are set before they start.
bool comm_waits, compute_waits;
std::mutex mu;
std::vector<int> wrong;  // by rank; guarded by mu

void Order(CUstream first, CUstream then, bool wait) {
  CUevent event = nullptr;
  CUDA_OK(cudaEventCreateWithFlags(&event, CU_EVENT_DISABLE_TIMING));
  CUDA_OK(cudaEventRecord(event, first));
  if (wait) {
    CUDA_OK(cudaStreamWaitEvent(then, event, 0));
  }
  CUDA_OK(cudaEventDestroy(event));
}

void Trials(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  CUstream streams[2];
  for (CUstream& stream : streams) CUDA_OK(cudaStreamCreateWithFlags(&stream, CU_STREAM_NON_BLOCKING));
  const auto [compute, communication] = streams;
  pretend_gpu_set_stream_role(compute, "compute");
  pretend_gpu_set_stream_role(communication, "comm");
  unsigned char *x = nullptr, *sum = nullptr;
  CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&x), kCount));
  CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&sum), kCount));
  int its_wrong = 0;
  for (int trial = 1; trial <= kTrials; trial++) {
    CUDA_OK(cudaMemsetAsync(x, trial, kCount, compute));
    Order(compute, communication, comm_waits);
    NCCL_OK(ncclAllReduce(x, sum, kCount, ncclUint8, ncclSum, comm, communication));
    Order(communication, compute, compute_waits);
    const auto result = Download(sum, kCount, compute);
    if (result != std::vector<unsigned char>(kCount, static_cast<unsigned char>(trial * rank.ranks)))
      its_wrong++;
    CUDA_OK(cudaStreamSynchronize(communication));
    CUDA_OK(cudaStreamSynchronize(compute));
  }
  CUDA_OK(cudaFree(x));
  CUDA_OK(cudaFree(sum));
  NCCL_OK(ncclCommDestroy(comm));
  for (const CUstream stream : streams) CUDA_OK(cudaStreamDestroy(stream));
  std::lock_guard<std::mutex> lock(mu);
  wrong.push_back(its_wrong);
}

class PolicyTest : public ::testing::TestWithParam<Case> {
 protected:
  void Expect(Found found, bool comm_does, bool compute_does) {
    pretend_gpu_set_policy(GetParam().policy);
    comm_waits = comm_does;
    compute_waits = compute_does;
    wrong.clear();
    RunThreads(kRanks, Trials);
    ASSERT_EQ(std::size_t{kRanks}, wrong.size());
    for (const int its_wrong : wrong) {
      if (found == Found::kNever) {
        EXPECT_EQ(0, its_wrong);
      } else if (found == Found::kAlways) {
        EXPECT_EQ(kTrials, its_wrong);
      }
    }
  }
};

TEST_P(PolicyTest, WithBothWaitsTheResultIsRight) { Expect(Found::kNever, true, true); }

TEST_P(PolicyTest, CommunicationDoesNotWait) { Expect(GetParam().comm_does_not_wait, false, true); }

TEST_P(PolicyTest, ComputationDoesNotWait) { Expect(GetParam().compute_does_not_wait, true, false); }

INSTANTIATE_TEST_SUITE_P(All, PolicyTest, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.policy;
  for (char& c : name) {
    if (c == '=' || c == ',') c = '_';
  }
  return name;
});

// Rank 0 waits for its collective, and rank 1 does something else for long: its lazy stream goes on after a
// while, as another rank needs it.
TEST(Lazy, AStreamThatAnotherRankNeedsGoesOn) {
  pretend_gpu_set_policy("lazy");
  RunThreads(2, [](Rank& rank) {
    const ncclComm_t comm = rank.Join();
    int* const memory = Upload(std::vector<int>{rank.rank}, rank.stream);
    CUDA_OK(cudaStreamSynchronize(rank.stream));
    NCCL_OK(ncclAllReduce(memory, memory, 1, ncclInt32, ncclMax, comm, rank.stream));
    if (rank.rank == 0) {
      EXPECT_EQ(1, Download(memory, 1, rank.stream)[0]);
    }
    while (cudaStreamQuery(rank.stream) != cudaSuccess) usleep(1000);
    CUDA_OK(cudaFree(memory));
    NCCL_OK(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace pretend_gpu::nccl::testing

int main(int argc, char** argv) { return pretend_gpu::nccl::testing::Main(argc, argv, "prompt"); }
