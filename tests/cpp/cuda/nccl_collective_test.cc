// Each collective on device memory, with each type and op that NCCL has, with 1 to 4 ranks.
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/cuda/nccl_trial.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kTrialsOfGroup = 8;

Trial TrialOf(CollectiveKind kind, int dtype, std::int64_t rows, std::int64_t row_count) {
  Trial trial;
  trial.kind = kind;
  trial.dtype = static_cast<DType>(dtype);
  trial.rows = rows;
  trial.row_count = row_count;
  trial.salt = static_cast<unsigned>(dtype + rows);
  return trial;
}

bool IsSupported(const Trial& trial, int num_ranks) {
  return nccl::SupportOf(CallOf(trial, num_ranks).operation, num_ranks) == nccl::Support::kYes;
}

// Those of one collective that NCCL supports; `shape` makes the rows of each.
template <typename Shape>
std::vector<Trial> Reductions(CollectiveKind kind, int num_ranks, Shape shape) {
  constexpr std::pair<double, double> kFactors[] = {{1, 1}, {0.5, 1}, {1, 4}, {0.3, 1}, {0.25, -0.75}};
  std::vector<Trial> trials;
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      for (const auto& [prescale, postscale] : kFactors) {
        Trial trial = TrialOf(kind, dtype, 0, 3);
        trial.op = static_cast<ReduceOp>(op);
        trial.prescale = prescale;
        trial.postscale = postscale;
        if (!IsSupported(trial, num_ranks)) continue;
        shape(&trial, trials.size());
        trials.push_back(trial);
      }
    }
  }
  return trials;
}

std::vector<Trial> Allreduces(int num_ranks) {
  return Reductions(CollectiveKind::kAllreduce, num_ranks, [&](Trial* trial, std::size_t index) {
    constexpr std::int64_t kRows[] = {1, 5, 90, 0, 400};
    trial->rows = kRows[index % 5];
    Placement placement;
    placement.in_place = index % 2 == 1;
    trial->placements.assign(static_cast<std::size_t>(num_ranks), placement);
  });
}

std::vector<Trial> Reducescatters(int num_ranks) {
  return Reductions(CollectiveKind::kReducescatter, num_ranks, [&](Trial* trial, std::size_t index) {
    // Fewer rows than ranks, as many, and more, that divide evenly or not.
    const std::int64_t ranks = num_ranks;
    const std::int64_t rows[] = {ranks - 1, ranks, ranks + 1, 30 * ranks, 30 * ranks + 2};
    trial->rows = rows[index % 5];
    trial->to_root = index % 3 == 0;
    trial->root = static_cast<int>(index) % num_ranks;
  });
}

std::vector<Trial> Moves(int num_ranks) {
  std::vector<Trial> trials;
  const auto ranks = static_cast<std::size_t>(num_ranks);
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int root = 0; root < num_ranks; ++root) {
      Trial broadcast = TrialOf(CollectiveKind::kBroadcast, dtype, 40 * (dtype % 3), 7);
      broadcast.root = root;
      Placement placement;
      placement.in_place = (dtype + root) % 2 == 0;
      broadcast.placements.assign(ranks, placement);
      trials.push_back(broadcast);
    }
    for (const bool even : {true, false}) {
      Trial allgather = TrialOf(CollectiveKind::kAllgather, dtype, 0, 3);
      Trial alltoall = TrialOf(CollectiveKind::kAlltoall, dtype, 0, 2);
      for (int rank = 0; rank < num_ranks; ++rank) {
        allgather.rows_of.push_back(even ? 9 : (rank * 5 + dtype) % 4 * 11);
        alltoall.splits.emplace_back();
        for (int to = 0; to < num_ranks; ++to) {
          alltoall.splits.back().push_back(even ? 8 : (rank * 3 + to * 5 + dtype) % 4 * 13);
        }
      }
      trials.push_back(allgather);
      trials.push_back(alltoall);
    }
    trials.push_back(TrialOf(CollectiveKind::kBarrier, dtype, 0, 1));
  }
  return trials;
}

// One rank's tensors of a trial.
struct Tensors {
  Tensors(const Trial& its_trial, const NcclRank& rank)
      : trial(its_trial),
        content(InputOf(trial, rank.rank)),
        input(content.size()),
        output(OutputBytes(rank)),
        in_place(!trial.placements.empty() && trial.placements.front().in_place) {
    input.Write(content, rank.compute);
  }

  std::size_t OutputBytes(const NcclRank& rank) const {
    std::vector<int> ranks;
    for (int each = 0; each < rank.num_ranks; ++each) ranks.push_back(each);
    return ExpectedOf(trial, ranks, rank.rank).output.size();
  }

  const Trial& trial;
  const std::vector<std::byte> content;
  const DeviceMemory input, output;
  const bool in_place;
};

// Runs trials as groups, as a transfer would: each stream waits for the other.
void RunTrials(const NcclRank& rank, nccl::Communicator* communicator, const std::vector<Trial>& trials) {
  for (std::size_t begin = 0; begin < trials.size(); begin += kTrialsOfGroup) {
    std::vector<std::unique_ptr<Tensors>> all;
    std::vector<nccl::NcclCall> calls;
    for (std::size_t i = begin; i < std::min(trials.size(), begin + kTrialsOfGroup); ++i) {
      all.push_back(std::make_unique<Tensors>(trials[i], rank));
      const Tensors& tensors = *all.back();
      nccl::AppendCalls(CallOf(trials[i], rank.num_ranks), ParticipantId(rank.rank), tensors.input.address(),
                        (tensors.in_place ? tensors.input : tensors.output).address(), &calls);
    }
    rank.Order(rank.compute, rank.comm);
    ExpectOk(communicator->Enqueue(calls, rank.comm_stream()));
    ExpectOk(AwaitReady(communicator));
    rank.Order(rank.comm, rank.compute);
    for (const auto& tensors : all) {
      const auto output = (tensors->in_place ? tensors->input : tensors->output).Read(rank.compute);
      if (!ExpectOutput(tensors->trial, rank.num_ranks, rank.rank, output)) return;
      if (!tensors->in_place) {
        EXPECT_EQ(tensors->content, tensors->input.Read(rank.compute));
      }
    }
  }
}

class NcclCollectiveTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  void Run(std::vector<Trial> (*trials_of)(int)) {
    const auto& [num_ranks, policy] = GetParam();
    pretend_gpu_set_policy(policy);
    const std::vector<Trial> trials = trials_of(num_ranks);
    ASSERT_FALSE(trials.empty());
    RunNcclRanks(num_ranks, [&](const NcclRank& rank, const nccl::UniqueId& id) {
      auto communicator = rank.Join(id);
      RunTrials(rank, communicator.get(), trials);
    });
    pretend_gpu_set_policy("random");
  }
};

INSTANTIATE_TEST_SUITE_P(All, NcclCollectiveTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::ValuesIn(kNcclPolicies)));

TEST_P(NcclCollectiveTest, Allreduce) { Run(Allreduces); }
TEST_P(NcclCollectiveTest, Reducescatter) { Run(Reducescatters); }
TEST_P(NcclCollectiveTest, BroadcastAllgatherAlltoall) { Run(Moves); }

}  // namespace
}  // namespace tf_smddp::testing
