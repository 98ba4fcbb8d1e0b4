#include "tests/cpp/testing/limited_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/process/backends.h"
#include "tests/cpp/testing/socket_wire.h"

namespace tf_smddp::testing {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Pipe MakePipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

void Write(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

Status RunRank(const Config& config, const LimitedBody& body, int report, std::unique_ptr<Wire> wire) {
  std::unique_ptr<Engine> engine;
  Status status = Engine::Start(config, std::make_shared<MappingCache>(), AllBackends(), &engine,
                                /*arena=*/nullptr, std::move(wire));
  if (!status.ok()) return status;
  Write(report, "+");
  status = body(*engine);
  if (status.ok()) status = engine->Shutdown();
  return status;
}

}  // namespace

Status RunSomeCollectives(Engine& engine) {
  const auto size = static_cast<float>(engine.config().size);
  for (const std::size_t count : {1, 1000, 300000}) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> input(count, 1.0f), output(count);
      const Status status = Await(engine, AllreduceFloats(input, &output));
      if (!status.ok()) return status;
      if (output != std::vector<float>(count, size)) return Internal("a wrong sum");
    }
  }
  return {};
}

Status RunUntilFailure(Engine& engine) {
  std::vector<float> data(5000, 1.0f);
  for (;;) {
    const Status status = Await(engine, AllreduceFloats(data, &data, ReduceOp::kMax));
    if (!status.ok()) return status;
  }
}

void Require(bool done, const char* what) {
  if (done) return;
  std::perror(what);
  ::_exit(9);
}

LimitedRanks::LimitedRanks(int size, const Limit& limit, const LimitedBody& body)
    : directories_(RanksOnHosts(size).size()) {
  SocketMesh mesh(RanksOnHosts(size));
  for (int rank = 0; rank < size; ++rank) {
    Pipe report = MakePipe(), log = MakePipe();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(20);  // whatever happens
      ::dup2(log.write.get(), STDERR_FILENO);
      // A limit on descriptors is about this rank's own.
      report.read.Reset();
      log = {};
      ranks_.clear();
      mesh.KeepOnly(rank);
      Config config = RankConfig(rank, size, directories_[mesh.HostOf(rank)].path());
      mesh.SetLocal(&config);
      config.log_level = 2;
      config.table_slots = 1024;
      limit(rank, &config);
      Write(report.write.get(), RunRank(config, body, report.write.get(), mesh.MakeWire(rank)).message());
      ::_exit(0);
    }
    ranks_.push_back({pid, std::move(report.read), std::move(log.read), ""});
  }
}

void LimitedRanks::AwaitInit() {
  for (Rank& rank : ranks_) {
    char byte = 0;
    ASSERT_EQ(::read(rank.report.get(), &byte, 1), 1);
    ASSERT_EQ(byte, '+') << ReadAll(rank.report.get());
    rank.reported = "+";
  }
}

RankEnd LimitedRanks::Await(int number) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  rank.reported += ReadAll(rank.report.get());
  RankEnd end;
  end.error = rank.reported.substr(rank.reported.substr(0, 1) == "+" ? 1 : 0);
  return end;
}

std::vector<RankEnd> LimitedRanks::AwaitAll() {
  std::vector<RankEnd> ends;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ends.push_back(Await(static_cast<int>(rank)));
    ends.back().log = ReadAll(ranks_[rank].log.get());
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ::waitpid(ranks_[rank].pid, &ends[rank].wait_status, 0);  // fails when a test has done so already
  }
  for (const PrivateDirectory& directory : directories_) {
    EXPECT_NE(::access(directory.path().c_str(), F_OK), 0) << "the rendezvous directory is still there";
  }
  return ends;
}

std::vector<RankEnd> RunLimited(int size, const Limit& limit, const LimitedBody& body) {
  std::vector<RankEnd> ends = LimitedRanks(size, limit, body).AwaitAll();
  for (const RankEnd& end : ends) EXPECT_EQ(end.wait_status, 0) << end.log;
  return ends;
}

std::vector<RankEnd> KillOneOnHosts(int hosts, int size, int victim, std::chrono::microseconds when,
                                    const LimitedBody& body) {
  SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(size) + " on " +
               std::to_string(hosts) + " hosts after " + std::to_string(when.count()) + " us");
  Require(::setenv("TF_SMDDP_TEST_HOSTS", std::to_string(hosts).c_str(), 1) == 0, "setenv");
  LimitedRanks ranks(size, [](int, Config*) {}, body);
  Require(::unsetenv("TF_SMDDP_TEST_HOSTS") == 0, "unsetenv");
  ranks.AwaitInit();
  ::usleep(static_cast<useconds_t>(when.count()));
  EXPECT_EQ(::kill(ranks.pid(victim), SIGKILL), 0);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RankEnd> ends = ranks.AwaitAll();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (int rank = 0; rank < size; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      EXPECT_TRUE(WIFSIGNALED(end.wait_status));
      continue;
    }
    EXPECT_NE(end.error.find("rank " + std::to_string(victim)), std::string::npos)
        << "rank " << rank << " says: " << end.error << "\n"
        << end.log;
  }
  return ends;
}

}  // namespace tf_smddp::testing
