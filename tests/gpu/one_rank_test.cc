// NCCL with one rank: what can be shown of it on a machine with one GPU. Each reduction of one input is that
// input, times its factor.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_packing.h"
#include "kernels/collectives/collective.h"
#include "kernels/common/config.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/cuda/nccl_trial.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

std::vector<Trial> TrialsOfOneRank() {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const Arithmetic& arithmetic : AllArithmetic()) {
    Trial trial;
    trial.kind = CollectiveKind::kAllreduce;
    trial.dtype = arithmetic.dtype;
    trial.op = arithmetic.op;
    trial.prescale = arithmetic.prescale;
    trial.postscale = arithmetic.postscale;
    trial.rows = 1000;
    trial.row_count = 3;
    trial.salt = ++salt;
    if (nccl::SupportOf(CallOf(trial, 1).operation, 1) == nccl::Support::kYes) trials.push_back(trial);
  }
  return trials;
}

// Puts each trial's calls on the stream, as one group, and expects its output.
template <typename Enqueue>
void ExpectTrials(const NcclRank& rank, const std::vector<Trial>& trials, Enqueue enqueue) {
  std::vector<std::unique_ptr<DeviceMemory>> inputs, outputs;
  std::vector<nccl::NcclCall> calls;
  for (const Trial& trial : trials) {
    const std::vector<std::byte> content = InputOf(trial, 0);
    inputs.push_back(std::make_unique<DeviceMemory>(content.size()));
    outputs.push_back(std::make_unique<DeviceMemory>(content.size()));
    inputs.back()->Write(content, rank.comm);
    nccl::AppendCalls(CallOf(trial, 1), ParticipantId(0), inputs.back()->address(), outputs.back()->address(),
                      &calls);
  }
  enqueue(calls);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    EXPECT_TRUE(ExpectOutput(trials[i], 1, 0, outputs[i]->Read(rank.comm))) << DescribeTrial(trials[i]);
  }
}

TEST(OneRank, ReducesEachTypeByEachOp) {
  const std::vector<Trial> trials = TrialsOfOneRank();
  ASSERT_GT(trials.size(), 20u);
  RunNcclRanks(1, [&](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    ExpectTrials(rank, trials, [&](const std::vector<nccl::NcclCall>& calls) {
      ExpectOk(communicator->Enqueue(calls, rank.comm_stream()));
      ExpectOk(AwaitReady(communicator.get()));
    });
  });
}

TEST(OneRank, PacksTheSame) {
  RunNcclRanks(1, [](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    std::unique_ptr<nccl::Packer> packer;
    ExpectOk(nccl::Packer::Open(rank.place, nccl::PackingBufferBytes(Config().bucket_cap_bytes), &packer));
    ASSERT_NE(packer, nullptr);
    for (int time = 0; time < 3; ++time) {
      ExpectTrials(rank, TrialsOfOneRank(), [&](const std::vector<nccl::NcclCall>& calls) {
        for (packer->Begin(calls); !packer->done();) {
          ExpectOk(packer->Enqueue(communicator.get(), rank.comm_stream()));
          ExpectOk(AwaitReady(communicator.get()));
          ExpectOk(packer->Unpack(rank.comm_stream()));
        }
      });
    }
  });
}

TEST(OneRank, CanAbort) {
  RunNcclRanks(1, [](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    const DeviceMemory data(4000);
    data.Set(1, rank.comm);
    ExpectOk(communicator->Enqueue(SumOfInts(rank, data, data, 1000), rank.comm_stream()));
    ExpectOk(AwaitReady(communicator.get()));
    communicator->Abort();
    ExpectError(communicator->Enqueue(SumOfInts(rank, data, data, 1000), rank.comm_stream()), "abort");
    CUDA_OK(cuStreamSynchronize(rank.comm));
  });
}

}  // namespace
}  // namespace tf_smddp::testing
