// Ranks as processes on several hosts, which a wire joins; one of them dies.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/socket_wire.h"

namespace tf_smddp::testing {
namespace {

// Takes a while, and then tries a collective. Returns its error, or OK.
Status ComeTooLate(Engine& engine) {
  ::usleep(4'000'000);
  std::vector<float> data(10, 1.0f);
  return Await(engine, AllreduceFloats(data, &data));
}

TEST(HostsDeath, SigkillAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < (kSanitized ? 4 : 20) && !HasFailure(); ++round) {
    const int size = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const int hosts = 2 + static_cast<int>(random() % 4);
    if (random() % 2 == 0) {
      ASSERT_EQ(::setenv("TF_SMDDP_TEST_GROUPS", "1", 1), 0);
    }
    KillOneOnHosts(hosts, size, victim, std::chrono::microseconds(random() % 30000), RunUntilFailure);
    ASSERT_EQ(::unsetenv("TF_SMDDP_TEST_GROUPS"), 0);
  }
}

// Members make and remove communicators, in which there are all ranks or two.
TEST(HostsDeath, WhileMembersMakeCommunicators) {
  std::mt19937 random(std::random_device{}());
  const auto body = [](Engine& engine) {
    const int size = engine.config().size, rank = engine.config().rank;
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    Status status;
    for (std::uint64_t key = 0; status.ok(); ++key) {
      const std::vector<int> ranks = key % 2 == 0 ? all : std::vector<int>{0, size - 1};
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      CommunicatorId id = kWorld;
      status = engine.CreateCommunicatorAmong(ranks, key, &id);
      if (status.ok()) status = engine.RemoveCommunicator(id);
    }
    return status;
  };
  for (int round = 0; round < (kSanitized ? 4 : 20) && !HasFailure(); ++round) {
    const int size = 3 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const int hosts = 1 + static_cast<int>(random() % 3);
    KillOneOnHosts(hosts, size, victim, std::chrono::microseconds(random() % 30000), body);
  }
}

TEST(HostsEnd, ShutdownNamesTheRankThatItWaitsForAndGivesUp) {
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", "2", 1), 0);
  const auto body = [](Engine& engine) {
    const Status status = RunSomeCollectives(engine);
    if (!status.ok() || engine.config().rank != 1) return status;
    return ComeTooLate(engine);
  };
  // Rank 0 alone gives up. Rank 2, which has called shutdown(), too, has nothing left that could fail.
  const auto limit = [](int rank, Config* config) { config->stall_timeout_ms = rank == 2 ? 20000 : 2000; };
  const std::vector<RankEnd> ends = RunLimited(3, limit, body);
  ASSERT_EQ(::unsetenv("TF_SMDDP_TEST_HOSTS"), 0);
  const std::string text = " waited in shutdown() for rank 1, longer than SMDDP_STALL_TIMEOUT";
  for (const int rank : {0, 1}) {
    const std::string& error = ends[static_cast<std::size_t>(rank)].error;
    EXPECT_NE(error.find(text), std::string::npos) << rank << ": " << error;
  }
  EXPECT_EQ(ends[2].error, "");
  EXPECT_NE(ends[0].log.find("shutdown() waits for rank 1"), std::string::npos) << ends[0].log;
  EXPECT_EQ(ends[2].log.find("shutdown() waits for"), std::string::npos)
      << ends[2].log;  // one says it for all
}

// The connection between two ranks of which neither is its host's first, so neither is a relay.
TEST(HostsDeath, AConnectionThatOnlyTwoRanksUseIsLost) {
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", "2", 1), 0);  // 0 and 2 are on one host, 1 and 3 on the other
  const auto body = [](Engine& engine) {
    Status status = RunSomeCollectives(engine);
    if (engine.config().rank == 2) SocketWire::BreakConnectionTo(3);
    std::vector<float> data(100000, 1.0f);  // all ranks carry a part
    while (status.ok()) status = Await(engine, AllreduceFloats(data, &data, ReduceOp::kMax));
    return status;
  };
  const std::vector<RankEnd> ends = RunLimited(4, [](int, Config*) {}, body);
  ASSERT_EQ(::unsetenv("TF_SMDDP_TEST_HOSTS"), 0);
  for (const RankEnd& end : ends) {
    const bool says =
        end.error.find("the connection to rank 2 on another host was lost") != std::string::npos ||
        end.error.find("the connection to rank 3 on another host was lost") != std::string::npos;
    EXPECT_TRUE(says) << end.error << "\n" << end.log;
  }
}

}  // namespace
}  // namespace tf_smddp::testing
