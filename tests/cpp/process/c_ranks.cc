#include "tests/cpp/process/c_ranks.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {

void RunCRanks(int size, const std::function<void(int rank)>& body, bool orderly) {
  const PrivateDirectory directory;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(::fork());
    ASSERT_GE(ranks.back(), 0);
    if (ranks.back() > 0) continue;
    ::alarm(60);
    for (const char* name : {"SMDDP_RANK", "SMDDP_LOCAL_RANK"}) {
      ::setenv(name, std::to_string(rank).c_str(), 1);
    }
    for (const char* name : {"SMDDP_SIZE", "SMDDP_LOCAL_SIZE"}) {
      ::setenv(name, std::to_string(size).c_str(), 1);
    }
    ::setenv("SMDDP_RENDEZVOUS", directory.path().c_str(), 1);
    ::setenv("SMDDP_ARENA_BYTES", std::to_string(32 << 20).c_str(), 1);
    ::setenv("SMDDP_LOG_LEVEL", "error", 1);
    ExpectSuccess(smddp_init(nullptr, nullptr));
    if (smddp_is_initialized() == 1) body(rank);
    const smddp_result end = smddp_shutdown();
    if (orderly) ExpectSuccess(end);
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t rank : ranks) {
    int status = -1;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0) << "see the output of that rank";
  }
}

}  // namespace tf_smddp::testing
