#include "kernels/control/launcher_process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

// A folder like /proc with some processes. Pid 50 is this one.
class FakeProc : public ::testing::Test {
 protected:
  FakeProc() {
    char name[] = "/tmp/smddp-proc-XXXXXX";
    path_ = ::mkdtemp(name);
    Add("self", 50, "python", 40, 500, "RANK=1");
  }
  ~FakeProc() override {
    for (const std::string& folder : folders_) {
      ::unlink((folder + "/stat").c_str());
      ::unlink((folder + "/environ").c_str());
      ::rmdir(folder.c_str());
    }
    ::rmdir(path_.c_str());
  }

  // `environment`: variables, separated by '|'. "-" makes no such file.
  void Add(const std::string& folder, int pid, const std::string& name, int parent, int start,
           std::string environment) {
    const std::string path = path_ + "/" + folder;
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    folders_.push_back(path);
    std::ofstream(path + "/stat") << pid << " (" << name << ") S " << parent
                                  << " 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 " << start << " 99 98\n";
    if (environment == "-") return;
    for (char& byte : environment) byte = byte == '|' ? '\0' : byte;
    std::ofstream(path + "/environ") << environment << '\0';
  }
  void Add(int pid, const std::string& name, int parent, int start, const std::string& environment) {
    Add(std::to_string(pid), pid, name, parent, start, environment);
  }

  LauncherProcess Find(const std::vector<std::string>& variables = {"RANK=1", "WORLD_SIZE=2"}) {
    return FindLauncherProcess(variables, path_);
  }

 private:
  std::string path_;
  std::vector<std::string> folders_;
};

TEST_F(FakeProc, TheParentWithoutTheVariables) {
  Add(40, "mpiexec", 1, 400, "PATH=/bin|HOME=/");
  const LauncherProcess found = Find();
  EXPECT_EQ(found.pid, 40);
  EXPECT_EQ(found.start_time, 400u);
  EXPECT_EQ(found.name, "mpiexec");
}

TEST_F(FakeProc, WrappersAreSkipped) {
  Add(40, "numactl", 30, 400, "A=1|RANK=1|WORLD_SIZE=2");
  Add(30, "a (b) c) d", 20, 300, "WORLD_SIZE=2|RANK=1|B=RANK=7");
  Add(20, "hydra_pmi_proxy", 1, 200, "");
  EXPECT_EQ(Find().pid, 20);
  EXPECT_EQ(Find().name, "hydra_pmi_proxy");
}

TEST_F(FakeProc, AnOuterRankOfTheSameLauncherIsNoWrapper) {
  Add(40, "torchrun", 30, 400, "RANK=0|WORLD_SIZE=2");  // is rank 0 of an outer run
  EXPECT_EQ(Find().pid, 40);
}

TEST_F(FakeProc, TheWholeVariableCounts) {
  Add(40, "python", 1, 400, "RANK=1|WORLD_SIZE=23|XRANK=1");
  EXPECT_EQ(Find().pid, 40);
}

TEST_F(FakeProc, AnUnreadableEnvironmentIsTheLauncher) {
  Add(40, "slurmstepd", 1, 400, "-");
  EXPECT_EQ(Find().pid, 40);
}

TEST_F(FakeProc, NameWithParentheses) {
  Add(40, "x) S 7 (y", 1, 400, "");
  EXPECT_EQ(Find().pid, 40);
  EXPECT_EQ(Find().start_time, 400u);
  EXPECT_EQ(Find().name, "x) S 7 (y");
}

TEST_F(FakeProc, NotFoundWhereTheAncestorsEnd) {
  Add(40, "bash", 0, 400, "RANK=1|WORLD_SIZE=2");  // the first process of a pid namespace
  EXPECT_EQ(Find().pid, 0);
}

TEST_F(FakeProc, NotFoundWhereTheParentIsOutOfSight) { EXPECT_EQ(Find().pid, 0); }

TEST(LauncherProcess, OfThisProcess) {
  // This test's own parent was not started with such a variable.
  EXPECT_EQ(FindLauncherProcess({"SMDDP_TEST_NO_SUCH_VARIABLE=1"}).pid, ::getppid());
  EXPECT_GT(FindLauncherProcess({"SMDDP_TEST_NO_SUCH_VARIABLE=1"}).start_time, 0u);
}

TEST(LauncherProcess, NoProcfs) { EXPECT_EQ(FindLauncherProcess({"A=1"}, "/nowhere").pid, 0); }

}  // namespace
}  // namespace tf_smddp
