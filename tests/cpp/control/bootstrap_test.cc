#include "kernels/control/bootstrap.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/control/unix_socket.h"
#include "kernels/memory/shared_memory.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp {
namespace {

using testing::PrivateDirectory;
using testing::RankConfig;
using testing::TimeLimit;

constexpr std::uint64_t kArenaBytes = 1 << 20;

struct Outcome {
  Status status;
  Meeting meeting;
};

// Bootstraps with each of `configs` in a thread of its own.
std::vector<Outcome> MeetAll(
    const std::vector<Config>& configs,
    const std::function<Status(std::size_t)>& prepare = [](std::size_t) { return Status(); }) {
  const TimeLimit limit(std::chrono::seconds(60));
  std::vector<Outcome> outcomes(configs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    threads.emplace_back([&, i] {
      UniqueFd arena;
      ASSERT_TRUE(CreateSharedMemory("test", kArenaBytes, &arena).ok());
      outcomes[i].status = Bootstrap(configs[i], arena.get(), kArenaBytes, &outcomes[i].meeting,
                                     [&prepare, i] { return prepare(i); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Config> Configs(int size, const std::string& directory) {
  std::vector<Config> configs;
  for (int rank = 0; rank < size; ++rank) configs.push_back(RankConfig(rank, size, directory));
  return configs;
}

void ExpectAllFailWith(const std::vector<Outcome>& outcomes, const std::string& part) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(outcome.status.message().find(part), std::string::npos)
        << "'" << outcome.status.message() << "' has no '" << part << "'";
  }
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

TEST(Bootstrap, EveryoneMeetsAndNothingIsLeft) {
  const PrivateDirectory directory;
  const std::vector<Outcome> outcomes = MeetAll(Configs(5, directory.path()));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    ASSERT_EQ(outcome.meeting.peers.size(), 5u);
    EXPECT_TRUE(outcome.meeting.control.valid());
    for (const LocalPeer& peer : outcome.meeting.peers) {
      EXPECT_EQ(peer.pid, ::getpid());
      EXPECT_FALSE(peer.pidfd.valid());  // this very process
      EXPECT_TRUE(peer.arena.valid());
      EXPECT_EQ(peer.arena_bytes, kArenaBytes);
    }
  }
  EXPECT_FALSE(Exists(directory.path()));
}

TEST(Bootstrap, SettingsThatDifferAreNamed) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(2, directory.path());
  configs[1].bucket_cap_bytes = 1280;
  ExpectAllFailWith(MeetAll(configs), "SMDDP_BUCKET_CAP_BYTES is 1280 on rank 1 but 26214400 on rank 0");
  EXPECT_FALSE(Exists(directory.path()));
}

TEST(Bootstrap, SizesThatDifferAreNamed) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(2, directory.path());
  configs[1].size = configs[1].local_size = 3;
  ExpectAllFailWith(MeetAll(configs), "SMDDP_SIZE is 3 on rank 1 but 2 on rank 0");
}

TEST(Bootstrap, TwoProcessesWithOneRankAreNamed) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(3, directory.path());
  configs[2].rank = configs[2].local_rank = 1;
  ExpectAllFailWith(MeetAll(configs), "two processes are rank 1");
}

TEST(Bootstrap, MissingRanksAreNamed) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(4, directory.path());
  configs.pop_back();
  configs.erase(configs.begin() + 1);
  for (Config& config : configs) config.bootstrap_timeout_seconds = 1;
  ExpectAllFailWith(MeetAll(configs), "rank(s) 1, 3 of 4");
  EXPECT_FALSE(Exists(directory.path()));
}

TEST(Bootstrap, MissingRankZeroIsNamed) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(2, directory.path());
  configs[1].bootstrap_timeout_seconds = 1;
  configs.erase(configs.begin());
  ExpectAllFailWith(MeetAll(configs), "rank 0 did not open its bootstrap socket");
}

TEST(Bootstrap, AFailedPreparationFailsEverywhere) {
  const PrivateDirectory directory;
  const std::vector<Outcome> outcomes = MeetAll(Configs(3, directory.path()), [](std::size_t rank) {
    return rank == 2 ? Internal("no address space") : Status();
  });
  ExpectAllFailWith(outcomes, "no address space");
  EXPECT_NE(outcomes[1].status.message().find("rank 2 failed during init()"), std::string::npos);
}

TEST(Bootstrap, ADirectoryThatOthersCanEnterIsRefused) {
  const PrivateDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  std::vector<Config> configs = Configs(2, directory.path());
  configs.pop_back();
  ExpectAllFailWith(MeetAll(configs), "mode 0700");
}

TEST(Bootstrap, ADirectoryThatIsGoneIsAnErrorAtOnce) {
  const std::string gone = "/tmp/smddp-test-that-never-was";
  ExpectAllFailWith(MeetAll(Configs(2, gone)), gone);
}

TEST(Bootstrap, ALongPathIsAnErrorThatSaysSo) {
  const PrivateDirectory directory;
  const std::string deep = directory.path() + "/" + std::string(120, 'd');
  ASSERT_EQ(::mkdir(deep.c_str(), 0700), 0);
  ExpectAllFailWith(MeetAll(Configs(2, deep)), "use a shorter directory");
  ::rmdir(deep.c_str());
}

TEST(Bootstrap, AStrangersMessageIsRefused) {
  const PrivateDirectory directory;
  const TimeLimit limit(std::chrono::seconds(60));
  std::thread stranger([&] {
    UniqueFd socket;
    ASSERT_TRUE(ConnectUnix(directory.path() + "/bootstrap",
                            std::chrono::steady_clock::now() + std::chrono::seconds(10), &socket)
                    .ok());
    ASSERT_TRUE(SendMessage(socket.get(), "hello", 5, {}).ok());
    std::vector<UniqueFd> fds;
    char byte;
    EXPECT_FALSE(ReceiveMessage(socket.get(), &byte, 1, 0,
                                std::chrono::steady_clock::now() + std::chrono::seconds(10), &fds)
                     .ok());
  });
  std::vector<Config> configs = Configs(2, directory.path());
  configs.pop_back();
  ExpectAllFailWith(MeetAll(configs), "does not understand");
  stranger.join();
}

}  // namespace
}  // namespace tf_smddp
