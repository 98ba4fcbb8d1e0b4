// A call of the network's library that does not return, on one of two hosts.
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/socket_wire.h"

namespace tf_smddp::testing {
namespace {

TEST(BlockedNetwork, EndsTheJobAndTheProcess) {
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", "2", 1), 0);
  const auto body = [](Engine& engine) {
    const Status status = RunSomeCollectives(engine);
    if (!status.ok()) return status;
    if (engine.config().rank == 1) SocketWire::BlockSends();
    return RunUntilFailure(engine);
  };
  LimitedRanks ranks(2, [](int, Config*) {}, body);
  // The job ends because of the call. Then the script of rank 1 has some seconds before its process is ended.
  ranks.Await(0);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  EXPECT_NE(ends[0].error.find("a call has not returned for 5 s"), std::string::npos) << ends[0].error;
  EXPECT_EQ(ends[0].wait_status, 0) << ends[0].log;
  EXPECT_TRUE(WIFEXITED(ends[1].wait_status)) << ends[1].log;
  EXPECT_EQ(WEXITSTATUS(ends[1].wait_status), 1) << ends[1].log;
  EXPECT_NE(ends[1].log.find("has not returned, though the job has ended"), std::string::npos) << ends[1].log;
}

}  // namespace
}  // namespace tf_smddp::testing
