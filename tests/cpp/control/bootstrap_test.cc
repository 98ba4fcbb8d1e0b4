#include "kernels/control/bootstrap.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/logging.h"
#include "kernels/control/bootstrap_messages.h"
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
  BootstrapResult result;
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
      if (configs[i].local_rank == 0) {
        ASSERT_TRUE(CreateSharedMemory("control", 4096, &outcomes[i].result.control).ok());
      }
      outcomes[i].status = Bootstrap(configs[i], arena.get(), kArenaBytes, &outcomes[i].result,
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

TEST(Bootstrap, AllRanksConnectAndNothingIsLeft) {
  const PrivateDirectory directory;
  const std::vector<Outcome> outcomes = MeetAll(Configs(5, directory.path()));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    ASSERT_EQ(outcome.result.peers.size(), 5u);
    EXPECT_TRUE(outcome.result.control.valid());
    for (const LocalPeer& peer : outcome.result.peers) {
      EXPECT_EQ(peer.pid, ::getpid());
      EXPECT_FALSE(peer.pidfd.valid());  // this very process
      EXPECT_TRUE(peer.arena.valid());
      EXPECT_EQ(peer.arena_bytes, kArenaBytes);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path()));
}

TEST(Bootstrap, SettingsThatDifferAreNamed) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(2, directory.path());
  configs[1].bucket_cap_bytes = 1280;
  ExpectAllFailWith(MeetAll(configs), "SMDDP_BUCKET_CAP_BYTES is 1280 on rank 1 but 26214400 on rank 0");
  EXPECT_FALSE(std::filesystem::exists(directory.path()));
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
  EXPECT_FALSE(std::filesystem::exists(directory.path()));
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

// Connections that are no rank's: one that sends something else, one that says nothing, and one that ends at
// once, as that of a client that is killed.
TEST(Bootstrap, AStrangerIsRefusedAndTheRunContinues) {
  const PrivateDirectory directory;
  const std::vector<Config> configs = Configs(2, directory.path());
  std::vector<Outcome> first;
  std::thread rank_zero([&] { first = MeetAll({configs[0]}); });
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  UniqueFd sends, silent, ends;
  for (UniqueFd* const socket : {&sends, &silent, &ends}) {
    ASSERT_TRUE(ConnectUnix(directory.path() + "/bootstrap", deadline, false, socket).ok());
  }
  ASSERT_TRUE(SendMessage(sends.get(), "hello", 5, {}).ok());
  ends.Reset();
  std::vector<UniqueFd> fds;
  char byte;
  EXPECT_FALSE(ReceiveMessage(sends.get(), &byte, 1, 0, deadline, &fds).ok());  // it is closed
  const std::vector<Outcome> second = MeetAll({configs[1]});
  rank_zero.join();
  EXPECT_TRUE(first[0].status.ok()) << first[0].status.message();
  EXPECT_TRUE(second[0].status.ok()) << second[0].status.message();
}

TEST(Bootstrap, AMissingRanksErrorMentionsTheStranger) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(2, directory.path());
  configs.pop_back();
  configs[0].bootstrap_timeout_seconds = 1;
  std::thread stranger([&] {
    const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    UniqueFd socket;
    EXPECT_TRUE(ConnectUnix(directory.path() + "/bootstrap", deadline, false, &socket).ok());
  });
  ExpectAllFailWith(MeetAll(configs), "pid " + std::to_string(::getpid()) +
                                          " connected during init() and closed the connection");
  stranger.join();
}

// Ranks that find the place by themselves, under `base`.
std::vector<Config> DerivedConfigs(int size, const std::string& run_id, const std::string& base) {
  std::vector<Config> configs = Configs(size, "");
  for (Config& config : configs) {
    config.run_id = run_id;
    config.temporary_directory = base;
  }
  return configs;
}

TEST(Bootstrap, RanksDeriveTheDirectory) {
  const PrivateDirectory base;
  for (const Outcome& outcome : MeetAll(DerivedConfigs(3, "run", base.path()))) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.result.peers.size(), 3u);
  }
  EXPECT_EQ(::rmdir(base.path().c_str()), 0);  // nothing is left in it
}

TEST(Bootstrap, SimultaneousRunsDoNotConnect) {
  const PrivateDirectory base;
  std::vector<Config> configs;
  for (const char* run : {"one", "two", "three"}) {
    for (const Config& config : DerivedConfigs(2, run, base.path())) configs.push_back(config);
  }
  // The ranks 1 first, so that each finds the places of the others.
  std::reverse(configs.begin(), configs.end());
  const std::vector<Outcome> outcomes = MeetAll(configs);
  for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(::rmdir(base.path().c_str()), 0);
}

TEST(Bootstrap, ALateRankFindsTheDirectory) {
  const PrivateDirectory base;
  for (const int late : {0, 1}) {
    std::vector<Config> configs = DerivedConfigs(2, "run", base.path());
    const TimeLimit limit(std::chrono::seconds(60));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&configs, rank, late] {
        if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        UniqueFd arena;
        ASSERT_TRUE(CreateSharedMemory("test", kArenaBytes, &arena).ok());
        BootstrapResult result;
        ASSERT_TRUE(CreateSharedMemory("control", 4096, &result.control).ok());
        const Status status =
            Bootstrap(configs[rank], arena.get(), kArenaBytes, &result, [] { return Status(); });
        EXPECT_TRUE(status.ok()) << status.message();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(::rmdir(base.path().c_str()), 0);
}

TEST(Bootstrap, ARankThatIsTooLateGetsTheDirectoryInTheError) {
  const PrivateDirectory base;
  std::vector<Config> configs = DerivedConfigs(2, "NAME=run", base.path());
  for (Config& config : configs) {
    config.bootstrap_timeout_seconds = 1;
    config.log_level = static_cast<int>(LogLevel::kWarning);
  }
  ::testing::internal::CaptureStderr();
  const std::vector<Outcome> zero = MeetAll({configs[0]});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[tf_smddp rank 0 warning] init() still waits for rank(s) 1, up to 1 s in all "
            "(SMDDP_BOOTSTRAP_TIMEOUT)\n");
  ExpectAllFailWith(zero, "rank(s) 1 of 2");
  ExpectAllFailWith(zero, "which follows from NAME=run");
  ::testing::internal::CaptureStderr();
  const std::vector<Outcome> one = MeetAll({configs[1]});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[tf_smddp rank 1 warning] init() still waits for rank 0, up to 1 s in all "
            "(SMDDP_BOOTSTRAP_TIMEOUT)\n");
  ExpectAllFailWith(one, "rank 0 did not open its bootstrap socket");
  ExpectAllFailWith(one, "started without this process");
  ExpectAllFailWith(one, "which follows from NAME=run");
  EXPECT_EQ(::rmdir(base.path().c_str()), 0);
}

TEST(Bootstrap, AProcessOfAnotherRunIsRefusedAndTheRunContinues) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(3, directory.path());
  for (Config& config : configs) config.run_id = "SMDDP_JOB_ID=ours";
  configs[1].run_id = "SMDDP_JOB_ID=theirs";
  configs.push_back(configs[0]);
  configs[3].rank = configs[3].local_rank = 1;
  const std::vector<Outcome> outcomes = MeetAll(configs);
  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status.message();
  EXPECT_TRUE(outcomes[2].status.ok()) << outcomes[2].status.message();
  EXPECT_TRUE(outcomes[3].status.ok()) << outcomes[3].status.message();
  const std::string refused = outcomes[1].status.message();
  // It was refused, or it came after the run's socket, or its directory, was removed.
  EXPECT_TRUE(refused.find("met rank 0 of another run") != std::string::npos ||
              refused.find("the job that it belonged to may have ended") != std::string::npos ||
              refused.find("has already started without this process") != std::string::npos ||
              refused.find("closed the connection") != std::string::npos)
      << refused;
}

TEST(Bootstrap, AConnectionThatTheOtherSideHasClosed) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]);
  ::close(ends[1]);
  const StatusMessage message = MakeStatusMessage({});
  EXPECT_EQ(SendMessage(ours.get(), &message, sizeof message, {}).message(), "closed the connection");
}

TEST(Bootstrap, LongMessagesAreCutBetweenCharacters) {
  const std::string fits(sizeof(StatusMessage::text) - 3, 'x');
  EXPECT_EQ(StatusOf(MakeStatusMessage(Internal(fits + "重み"))).message(), fits);
  EXPECT_EQ(StatusOf(MakeStatusMessage(Internal(fits + "é!"))).message(), fits + "é");
}

TEST(Bootstrap, AMissingRankThatWasRefusedIsMentioned) {
  const PrivateDirectory directory;
  std::vector<Config> configs = Configs(2, directory.path());
  configs[1].run_id = "SMDDP_JOB_ID=theirs";
  configs[0].bootstrap_timeout_seconds = 1;
  const std::vector<Outcome> outcomes = MeetAll(configs);
  EXPECT_NE(outcomes[0].status.message().find("came as rank 1 of another run, and was refused"),
            std::string::npos)
      << outcomes[0].status.message();
  EXPECT_NE(outcomes[1].status.message().find("met rank 0 of another run"), std::string::npos)
      << outcomes[1].status.message();
}

}  // namespace
}  // namespace tf_smddp
