#include "kernels/common/affinity.h"

#include <sched.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

Config StartedBy(const std::string& launcher) {
  Config config;
  config.launcher = launcher;
  return config;
}

TEST(AffinityWarning, OneCoreOfSeveralUnderALauncher) {
  const std::string text = AffinityWarning(StartedBy("Open MPI's mpirun"), 1, 8);
  EXPECT_NE(text.find("only one of the machine's 8 cores"), std::string::npos) << text;
  EXPECT_NE(text.find("Open MPI's mpirun"), std::string::npos) << text;
  EXPECT_NE(text.find("--bind-to none"), std::string::npos) << text;
}

TEST(AffinityWarning, NothingElse) {
  EXPECT_EQ(AffinityWarning(StartedBy("Open MPI's mpirun"), 2, 8), "");
  EXPECT_EQ(AffinityWarning(StartedBy("Open MPI's mpirun"), 1, 1), "");
  EXPECT_EQ(AffinityWarning(StartedBy(kSmddprun), 1, 8), "");
  EXPECT_EQ(AffinityWarning(StartedBy(""), 1, 8), "");
}

TEST(AffinityWarning, LooksAtTheCallingThread) {
  std::thread bound([] {
    cpu_set_t all, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
    }
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    const bool several = ::sysconf(_SC_NPROCESSORS_ONLN) > 1;
    EXPECT_EQ(AffinityWarning(StartedBy("Slurm's srun")).empty(), !several);
  });
  bound.join();
}

}  // namespace
}  // namespace tf_smddp
