// Ranks as processes on several hosts, which a wire joins; one of them dies.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

void KillOneOf(const char* hosts, int size, int victim, std::chrono::microseconds when) {
  SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(size) + " on " + hosts +
               " hosts after " + std::to_string(when.count()) + " us");
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", hosts, 1), 0);
  LimitedRanks ranks(size, [](int, Config*) {}, RunUntilFailure);
  ranks.AwaitInit();
  ::usleep(static_cast<useconds_t>(when.count()));
  ASSERT_EQ(::kill(ranks.pid(victim), SIGKILL), 0);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (int rank = 0; rank < size; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      EXPECT_TRUE(WIFSIGNALED(end.wait_status));
      continue;
    }
    EXPECT_NE(end.error.find("rank " + std::to_string(victim)), std::string::npos)
        << "rank " << rank << " says: " << end.error << "\n"
        << end.log;
  }
}

TEST(HostsDeath, SigkillAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < (kSanitized ? 4 : 20) && !HasFailure(); ++round) {
    const int size = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    KillOneOf(random() % 2 == 0 ? "2" : "3", size, victim, std::chrono::microseconds(random() % 30000));
  }
}

}  // namespace
}  // namespace tf_smddp::testing
