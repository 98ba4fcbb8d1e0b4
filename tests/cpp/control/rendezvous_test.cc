#include "kernels/control/rendezvous.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/control/unix_socket.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp {
namespace {

using testing::PrivateDirectory;

bool Exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

int Mode(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
}

int Entries(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(path.c_str()), &::closedir);
  int count = -2;  // "." and ".."
  while (listing != nullptr && ::readdir(listing.get()) != nullptr) ++count;
  return count;
}

class RendezvousTest : public ::testing::Test {
 protected:
  // A run of two ranks that is known by `id`.
  Config Run(const std::string& id) const {
    Config config;
    config.size = config.local_size = 2;
    config.launcher = "a launcher";
    config.run_id = id;
    config.temporary_directory = base_.path();
    return config;
  }

  std::string PlaceOf(const Config& config) const {
    Rendezvous place;
    EXPECT_TRUE(place.Find(config).ok());
    return place.socket_path();
  }

  std::string parent() const { return base_.path() + "/smddp-uid-" + std::to_string(::geteuid()); }

  // A child process opens the place of `config`, listens in it, and is killed.
  void BeKilledInside(const Config& config) const {
    int ready[2];
    ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Rendezvous place;
      UniqueFd listener;
      const bool ok =
          place.Find(config).ok() && place.Open().ok() && ListenUnix(place.socket_path(), 1, &listener).ok();
      [[maybe_unused]] const ssize_t written = ::write(ready[1], ok ? "y" : "n", 1);
      for (;;) ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  const PrivateDirectory base_;
};

void ExpectError(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find(part), std::string::npos)
      << "'" << status.message() << "' has no '" << part << "'";
}

TEST_F(RendezvousTest, TheSameForOneRunAndDifferentForOthers) {
  const Config config = Run("a");
  EXPECT_EQ(PlaceOf(config), PlaceOf(config));
  EXPECT_NE(PlaceOf(config), PlaceOf(Run("b")));
  Config larger = config;
  larger.size = 3;
  EXPECT_NE(PlaceOf(config), PlaceOf(larger));
  Config other_rank = config;
  other_rank.rank = other_rank.local_rank = 1;
  EXPECT_EQ(PlaceOf(config), PlaceOf(other_rank));
  Rendezvous one, same, other;
  ASSERT_TRUE(one.Find(config).ok() && same.Find(other_rank).ok() && other.Find(Run("b")).ok());
  EXPECT_EQ(one.token(), same.token());
  EXPECT_NE(one.token(), other.token());
}

TEST_F(RendezvousTest, TheLaunchersProcessTellsEqualEnvironmentsApart) {
  // No ancestor of this process has the variable, so the launcher is its parent. A forked child has another
  // parent.
  Config config = Run("MASTER_PORT=29500");
  config.rank_variables = {"SMDDP_TEST_NO_SUCH_VARIABLE=1"};
  const std::string here = PlaceOf(config);
  EXPECT_EQ(here, PlaceOf(config));
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string there = PlaceOf(config);
    [[maybe_unused]] const ssize_t written = ::write(pipe[1], there.data(), there.size());
    ::_exit(0);
  }
  char there[256] = {};
  EXPECT_EQ(::read(pipe[0], there, sizeof there - 1), static_cast<ssize_t>(here.size()));
  EXPECT_NE(here, there);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  Rendezvous place;
  ASSERT_TRUE(place.Find(config).ok());
  EXPECT_NE(place.explanation().find("pid " + std::to_string(::getppid())), std::string::npos)
      << place.explanation();
}

TEST_F(RendezvousTest, PrivateWhileOpenAndGoneAfterwards) {
  Rendezvous place;
  ASSERT_TRUE(place.Find(Run("a")).ok());
  EXPECT_TRUE(place.derived());
  EXPECT_TRUE(place.CheckPrivate().ok());  // also when it is not there yet
  const Status status = place.Open();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Mode(parent()), 0700);
  EXPECT_EQ(Mode(place.socket_path().substr(0, place.socket_path().rfind('/'))), 0700);
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(place.socket_path(), 1, &listener).ok());
  EXPECT_TRUE(place.CheckPrivate().ok());
  place.Close();
  EXPECT_EQ(Entries(base_.path()), 0);
  place.Close();
}

TEST_F(RendezvousTest, ClosesWithTheObject) {
  {
    Rendezvous place;
    ASSERT_TRUE(place.Find(Run("a")).ok());
    ASSERT_TRUE(place.Open().ok());
  }
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, TwoRunsAtOnceDoNotDisturbEachOther) {
  Rendezvous one, other;
  ASSERT_TRUE(one.Find(Run("a")).ok() && other.Find(Run("b")).ok());
  ASSERT_TRUE(one.Open().ok());
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(one.socket_path(), 1, &listener).ok());
  ASSERT_TRUE(other.Open().ok());
  EXPECT_TRUE(Exists(one.socket_path()));  // a living run's place is no leftover
  other.Close();
  EXPECT_TRUE(Exists(one.socket_path()));
  one.Close();
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, ManyRunsOfOneUserAtOnce) {
  // They make and remove the directory that they share all the time.
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 200; ++round) {
        Rendezvous place;
        ASSERT_TRUE(place.Find(Run(std::to_string(i))).ok());
        const Status status = place.Open();
        ASSERT_TRUE(status.ok()) << status.message();
        UniqueFd listener;
        const Status listening = ListenUnix(place.socket_path(), 1, &listener);
        ASSERT_TRUE(listening.ok()) << listening.message();
        ASSERT_TRUE(Exists(place.socket_path()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, TheSecondRankZeroIsRefused) {
  Rendezvous one, other;
  ASSERT_TRUE(one.Find(Run("a")).ok() && other.Find(Run("a")).ok());
  ASSERT_TRUE(one.Open().ok());
  ExpectError(other.Open(), "another process is rank 0 of this run already");
  EXPECT_TRUE(Exists(parent()));
}

TEST_F(RendezvousTest, ARankZeroThatIsAboutToEndIsWaitedFor) {
  Rendezvous one, other;
  ASSERT_TRUE(one.Find(Run("a")).ok() && other.Find(Run("a")).ok());
  ASSERT_TRUE(one.Open().ok());
  std::thread ending([&one] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    one.Close();
  });
  EXPECT_TRUE(other.Open().ok());
  ending.join();
}

TEST_F(RendezvousTest, WhatAKilledProcessLeftIsTakenOver) {
  BeKilledInside(Run("a"));
  ASSERT_TRUE(Exists(PlaceOf(Run("a"))));
  Rendezvous place;
  ASSERT_TRUE(place.Find(Run("a")).ok());
  ASSERT_TRUE(place.Open().ok());
  UniqueFd listener;
  const Status status = ListenUnix(place.socket_path(), 1, &listener);
  EXPECT_TRUE(status.ok()) << status.message();
  place.Close();
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, WhatAKilledProcessLeftIsRemovedByTheNextRun) {
  BeKilledInside(Run("a"));
  Rendezvous place;
  ASSERT_TRUE(place.Find(Run("b")).ok());
  ASSERT_TRUE(place.Open().ok());
  EXPECT_EQ(Entries(parent()), 1);
  place.Close();
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, WhatAKilledProcessLeftIsRemovedByAnotherRank) {
  BeKilledInside(Run("a"));
  Rendezvous place;
  ASSERT_TRUE(place.Find(Run("a")).ok());
  place.RemoveIfAbandoned();
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, ALivingProcesssPlaceIsNotAbandoned) {
  Rendezvous owner, other;
  ASSERT_TRUE(owner.Find(Run("a")).ok() && other.Find(Run("a")).ok());
  ASSERT_TRUE(owner.Open().ok());
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(owner.socket_path(), 1, &listener).ok());
  other.RemoveIfAbandoned();
  EXPECT_TRUE(Exists(owner.socket_path()));
}

TEST_F(RendezvousTest, OtherFilesAreLeftAlone) {
  ASSERT_EQ(::mkdir(parent().c_str(), 0700), 0);
  const std::string file = parent() + "/0123456789abcdef";  // as long as a key
  const std::string folder = parent() + "/notes";
  std::ofstream(file) << "mine";
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  {
    Rendezvous place;
    ASSERT_TRUE(place.Find(Run("a")).ok());
    ASSERT_TRUE(place.Open().ok());
  }
  EXPECT_TRUE(Exists(file) && Exists(folder));
  ::unlink(file.c_str());
  ::rmdir(folder.c_str());
  ::rmdir(parent().c_str());
}

TEST_F(RendezvousTest, APlantedLinkIsRefused) {
  const PrivateDirectory elsewhere;
  ASSERT_EQ(::symlink(elsewhere.path().c_str(), parent().c_str()), 0);
  Rendezvous place;
  ASSERT_TRUE(place.Find(Run("a")).ok());
  ExpectError(place.Open(), "mode 0700");
  ExpectError(place.CheckPrivate(), "mode 0700");
  EXPECT_EQ(Entries(elsewhere.path()), 0);
  ::unlink(parent().c_str());
}

TEST_F(RendezvousTest, ADirectoryThatOthersCanEnterIsRefused) {
  ASSERT_EQ(::mkdir(parent().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(parent().c_str(), 0750), 0);
  Rendezvous place;
  ASSERT_TRUE(place.Find(Run("a")).ok());
  ExpectError(place.Open(), "'" + parent() + "' must be a directory of this user with mode 0700");
  ExpectError(place.CheckPrivate(), "mode 0700");
  ::rmdir(parent().c_str());
}

TEST_F(RendezvousTest, ADirectoryOfAnotherUserIsRefused) {
  ASSERT_EQ(::mkdir(parent().c_str(), 0700), 0);
  if (::geteuid() != 0) {
    ExpectError(
        [] {
          Config config;
          config.rendezvous = "/root";  // nobody else's directory that an ordinary user could have made
          Rendezvous place;
          EXPECT_TRUE(place.Find(config).ok());
          return place.CheckPrivate();
        }(),
        "directory of this user");
  } else {
    ASSERT_EQ(::chown(parent().c_str(), 65534, 65534), 0);
    Rendezvous place;
    ASSERT_TRUE(place.Find(Run("a")).ok());
    ExpectError(place.Open(), "must be a directory of this user");
    ExpectError(place.CheckPrivate(), "must be a directory of this user");
  }
  ::rmdir(parent().c_str());
}

TEST_F(RendezvousTest, TheFirstUsableBase) {
  const PrivateDirectory runtime, temporary;
  Config config = Run("a");
  config.temporary_directory = "";
  config.user_runtime_directory = runtime.path();
  config.system_temporary_directory = temporary.path();
  const auto is_in = [&](const std::string& base) {
    return PlaceOf(config).rfind(base + "/smddp-uid-", 0) == 0;
  };
  EXPECT_TRUE(is_in(runtime.path()));
  ASSERT_EQ(::chmod(runtime.path().c_str(), 0755), 0);  // not as it must be
  EXPECT_TRUE(is_in(temporary.path()));
  config.user_runtime_directory = "/run/user/no-such-user";  // as sent along by srun from another host
  EXPECT_TRUE(is_in(temporary.path()));
  config.system_temporary_directory = temporary.path() + "/" + std::string(70, 'd');
  ASSERT_EQ(::mkdir(config.system_temporary_directory.c_str(), 0700), 0);
  EXPECT_TRUE(is_in("/tmp"));  // too long for a socket
  ::rmdir(config.system_temporary_directory.c_str());
  config.system_temporary_directory = "relative";
  EXPECT_TRUE(is_in("/tmp"));
}

TEST_F(RendezvousTest, AChosenBaseThatIsNotUsableIsAnError) {
  Config config = Run("a");
  const auto expect = [&](const std::string& chosen, const std::string& part) {
    config.temporary_directory = chosen;
    Rendezvous place;
    ExpectError(place.Find(config), part);
  };
  expect("/no/such/directory", "SMDDP_TMPDIR='/no/such/directory' is not the absolute path");
  expect("relative", "SMDDP_TMPDIR='relative' is not the absolute path");
  expect("/dev/null", "SMDDP_TMPDIR='/dev/null'");
  const std::string deep = base_.path() + "/" + std::string(70, 'd');
  ASSERT_EQ(::mkdir(deep.c_str(), 0700), 0);
  expect(deep, "is too long for a unix socket");
  ::rmdir(deep.c_str());
}

TEST_F(RendezvousTest, TheLongestBaseIsUsed) {
  const std::size_t rest =
      ("/smddp-uid-" + std::to_string(::geteuid()) + "/0123456789abcdef/bootstrap").size();
  Config config = Run("a");
  config.temporary_directory = base_.path() + "/" + std::string(107 - rest - base_.path().size() - 1, 'd');
  ASSERT_EQ(::mkdir(config.temporary_directory.c_str(), 0700), 0);
  {
    Rendezvous place;
    ASSERT_TRUE(place.Find(config).ok());
    EXPECT_EQ(place.socket_path().size(), 107u);
    ASSERT_TRUE(place.Open().ok());
    UniqueFd listener;
    const Status status = ListenUnix(place.socket_path(), 1, &listener);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ::rmdir(config.temporary_directory.c_str());
}

TEST_F(RendezvousTest, AGivenDirectoryIsUsedAsItIs) {
  const PrivateDirectory given;
  Config config = Run("a");
  config.rendezvous = given.path();
  Rendezvous place;
  ASSERT_TRUE(place.Find(config).ok());
  EXPECT_FALSE(place.derived());
  EXPECT_EQ(place.socket_path(), given.path() + "/bootstrap");
  place.RemoveIfAbandoned();  // nobody has been there yet
  ASSERT_TRUE(place.Open().ok());
  EXPECT_TRUE(Exists(given.path()));
  place.Close();
  EXPECT_FALSE(Exists(given.path()));
  ExpectError(place.Open(), "the job that it belonged to may have ended");
  ExpectError(place.CheckPrivate(), "the job that it belonged to may have ended");
  EXPECT_EQ(Entries(base_.path()), 0);
}

TEST_F(RendezvousTest, AGivenDirectoryWithAKilledProcesssSocketIsTakenOver) {
  const PrivateDirectory given;
  Config config = Run("a");
  config.rendezvous = given.path();
  BeKilledInside(config);
  Rendezvous place;
  ASSERT_TRUE(place.Find(config).ok());
  ASSERT_TRUE(place.Open().ok());
  UniqueFd listener;
  EXPECT_TRUE(ListenUnix(place.socket_path(), 1, &listener).ok());
}

}  // namespace
}  // namespace tf_smddp
