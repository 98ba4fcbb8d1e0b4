// Ranks as processes on several hosts, which a wire joins; one of them dies.
#include <chrono>
#include <random>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

TEST(HostsDeath, SigkillAtARandomMoment) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < (kSanitized ? 4 : 20) && !HasFailure(); ++round) {
    const int size = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    KillOneOnHosts(random() % 2 == 0 ? 2 : 3, size, victim, std::chrono::microseconds(random() % 30000),
                   RunUntilFailure);
  }
}

}  // namespace
}  // namespace tf_smddp::testing
