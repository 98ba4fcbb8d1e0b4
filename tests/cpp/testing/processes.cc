#include "tests/cpp/testing/processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/process/backends.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Child StartRank(int rank, int size, const std::string& directory, const ProcessBody& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    ::alarm(60);  // whatever happens
    std::unique_ptr<Engine> engine;
    Status status = Engine::Start(RankConfig(rank, size, directory), std::make_shared<MappingCache>(),
                                  AllBackends(), &engine);
    if (status.ok()) {
      [[maybe_unused]] const ssize_t met = ::write(ends[1], "+", 1);
      status = body(*engine);
    }
    [[maybe_unused]] const ssize_t told = ::write(ends[1], status.message().data(), status.message().size());
    ::_exit(7);
  }
  ::close(ends[1]);
  return {pid, UniqueFd(ends[0])};
}

void AwaitMet(const Child& child) {
  char byte = 0;
  ASSERT_EQ(::read(child.report.get(), &byte, 1), 1);
  ASSERT_EQ(byte, '+');
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

void KillOneRank(int size, int victim, int signal, std::chrono::microseconds when, const ProcessBody& body,
                 std::chrono::microseconds stopped) {
  const PrivateDirectory directory;
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(StartRank(rank, size, directory.path(), body));
  }
  for (const Child& child : children) AwaitMet(child);
  EXPECT_NE(::access(directory.path().c_str(), F_OK), 0) << "the rendezvous directory is still there";
  ::usleep(static_cast<useconds_t>(when.count()));
  const pid_t dead = children[static_cast<std::size_t>(victim)].pid;
  if (stopped.count() > 0) {
    ::kill(dead, SIGSTOP);
    ::usleep(static_cast<useconds_t>(stopped.count()));
    ::kill(dead, SIGCONT);
    ::usleep(100000);
  }
  ::kill(dead, signal);
  const auto begin = Clock::now();
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const std::string report = ReadAll(children[static_cast<std::size_t>(rank)].report.get());
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2)) << "rank " << rank;
    const std::string wanted = "rank " + std::to_string(victim) + " (pid " + std::to_string(dead) +
                               ") was killed by signal " + std::to_string(signal);
    EXPECT_NE(report.find(wanted), std::string::npos) << "rank " << rank << " says: " << report;
  }
  for (const Child& child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child.pid, &status, 0), child.pid);
    if (child.pid == dead) {
      EXPECT_EQ(WTERMSIG(status), signal);
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
  }
}

}  // namespace tf_smddp::testing
