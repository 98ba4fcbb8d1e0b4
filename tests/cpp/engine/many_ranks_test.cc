// As many ranks as a host takes; on several hosts, more than fit a mask of 64.
#include <sys/resource.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

int MostRanks() { return RanksOnHosts(70).size() > 1 ? 70 : 64; }

// The sockets that join the hosts of a test are many.
void RaiseFileLimit() {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(ManyRanks, RunEachCollective) {
  RaiseFileLimit();
  const int size = MostRanks();
  std::vector<Trial> trials;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast, CollectiveKind::kAllgather,
        CollectiveKind::kReducescatter, CollectiveKind::kAlltoall}) {
    Trial trial;
    trial.kind = kind;
    trial.salt = static_cast<unsigned>(trials.size());
    trial.op = ReduceOp::kAverage;
    trial.rows = 3 * size + 1;
    trial.row_count = 5;
    trial.root = size - 1;
    if (kind == CollectiveKind::kAllgather) {
      for (int rank = 0; rank < size; ++rank) trial.rows_of.push_back(rank % 4);
    }
    if (kind == CollectiveKind::kAlltoall) {
      for (int rank = 0; rank < size; ++rank) {
        trial.splits.emplace_back(static_cast<std::size_t>(size), rank % 3);
      }
    }
    trials.push_back(trial);
    if (kind != CollectiveKind::kAllreduce && kind != CollectiveKind::kReducescatter) continue;
    trial.dtype = DType::kInt16;
    trials.push_back(trial);
  }
  RunRanks(size, [&](int, Engine& engine) { RunAsGroup(engine, kWorld, trials, /*seed=*/1); });
}

TEST(ManyRanks, ADifferenceIsShownAndTheNextStepRuns) {
  RaiseFileLimit();
  const int size = MostRanks();
  RunRanks(size, [&](int rank, Engine& engine) {
    std::vector<float> data(rank == size - 1 ? 5 : 4, 1.0f);
    const Status status = Await(engine, AllreduceFloats(data, &data));
    EXPECT_NE(status.message().find("rank " + std::to_string(size - 1) + " has"), std::string::npos)
        << status.message();
    std::vector<float> next(4, 1.0f);
    ASSERT_TRUE(Await(engine, AllreduceFloats(next, &next)).ok());
    EXPECT_EQ(next[3], static_cast<float>(size));
  });
}

}  // namespace
}  // namespace tf_smddp::testing
