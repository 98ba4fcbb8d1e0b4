// The file that Engine::StartTimeline writes.
#include "kernels/engine/watch/timeline.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Removes the files of two ranks with the object.
class Files {
 public:
  ~Files() {
    for (const std::string& path : paths_) std::remove(path.c_str());
  }
  const std::string& of(int rank) const { return paths_[static_cast<std::size_t>(rank)]; }

 private:
  const PrivateDirectory directory_;
  const std::vector<std::string> paths_{directory_.path() + "/0", directory_.path() + "/1"};
};

void Allreduce(Engine& engine, std::int64_t count, const std::string& label) {
  std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
  Request request = AllreduceFloats(data, &data);
  request.label = label;
  ASSERT_TRUE(Await(engine, std::move(request)).ok());
}

TEST(Timeline, HasWhatEndsBetweenStartAndStop) {
  const Files files;
  RunRanks(2, [&files](int rank, Engine& engine) {
    Allreduce(engine, 10, "before");
    ASSERT_TRUE(engine.StartTimeline(files.of(rank)).ok());
    Allreduce(engine, 10, "small \"one\"\n");
    Allreduce(engine, 100'000, "large");
    Allreduce(engine, 10, "é \xe9");
    ASSERT_TRUE(engine.StopTimeline().ok());
    Allreduce(engine, 10, "after");
    const std::string text = Read(files.of(rank));
    EXPECT_EQ(text.front(), '[') << text;
    EXPECT_EQ(text.substr(text.size() - 3), "}]\n") << text;
    EXPECT_EQ(Count(text, "\"rank " + std::to_string(rank) + "\""), 1) << text;
    EXPECT_EQ(Count(text, R"("name":"small \"one\"\u000a")"), 2) << text;
    EXPECT_EQ(Count(text, R"("name":"large")"), 2) << text;
    EXPECT_EQ(Count(text, R"("name":"é ?")"), 2) << text;
    EXPECT_EQ(Count(text, R"("bytes":400000,"dtype":"float32","process_set":0,"way":"staged")"), 1) << text;
    EXPECT_EQ(Count(text, R"("bytes":40,"dtype":"float32","process_set":0,"way":"small")"), 2) << text;
    EXPECT_EQ(Count(text, "before") + Count(text, "after"), 0) << text;
    EXPECT_EQ(Count(text, "\"ph\":\"b\""), Count(text, "\"ph\":\"e\"")) << text;
  });
}

TEST(Timeline, HasABarForEachStep) {
  const Files files;
  RunRanks(2, [&files](int rank, Engine& engine) {
    std::vector<float> first(5, 1.0f), second(30'000, 1.0f);
    const auto run_step = [&] {
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<Request> requests;
      requests.push_back(InGroup(AllreduceIn(kWorld, &first), ticket, 0, 2));
      requests.push_back(InGroup(AllreduceIn(kWorld, &second), ticket, 1, 2));
      for (const Status& status : AwaitAll(engine, std::move(requests))) ASSERT_TRUE(status.ok());
    };
    run_step();
    ASSERT_TRUE(engine.StartTimeline(files.of(rank)).ok());
    for (int step = 0; step < 3; ++step) run_step();
    Allreduce(engine, 10, "no step");
    ASSERT_TRUE(engine.StopTimeline().ok());
    const std::string text = Read(files.of(rank));
    EXPECT_EQ(Count(text, R"("args":{"name":"steps"})"), 1) << text;
    EXPECT_EQ(Count(text, R"("ph":"X")"), 3) << text;
    // Each begins where the one before it has ended.
    double ended = 0;
    for (const char* name : {"step 2", "step 3", "step 4"}) {
      const std::size_t at = text.find("\"name\":\"" + std::string(name) + "\",\"ts\":");
      ASSERT_NE(at, std::string::npos) << text;
      double begin = 0, duration = -1;
      ASSERT_EQ(
          std::sscanf(text.c_str() + at, "\"name\":\"step %*d\",\"ts\":%lf,\"dur\":%lf", &begin, &duration),
          2)
          << text;
      EXPECT_GT(duration, 0);
      if (ended > 0) {
        EXPECT_NEAR(begin, ended, 0.01);
      }
      ended = begin + duration;
    }
  });
}

TEST(Timeline, StartsOnceAtATimeAndEndsWithTheEngine) {
  const Files files;
  RunRanks(2, [&files](int rank, Engine& engine) {
    EXPECT_TRUE(engine.StopTimeline().ok());  // there is none
    ASSERT_TRUE(engine.StartTimeline(files.of(rank)).ok());
    const Status twice = engine.StartTimeline(files.of(rank));
    EXPECT_EQ(twice.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(twice.message().find("'" + files.of(rank) + "' already"), std::string::npos);
    Allreduce(engine, 10, "step");
  });
  for (int rank : {0, 1}) {
    const std::string text = Read(files.of(rank));
    EXPECT_EQ(Count(text, R"("name":"step")"), 2) << text;
    EXPECT_EQ(text.substr(text.size() - 3), "}]\n") << text;
  }
}

TEST(Timeline, AFailedStepIsInTheFileAtOnce) {
  const Files files;
  RunRanks(2, [&files](int rank, Engine& engine) {
    ASSERT_TRUE(engine.StartTimeline(files.of(rank)).ok());
    std::vector<float> data(rank == 0 ? 4 : 5, 1.0f);
    EXPECT_FALSE(Await(engine, AllreduceFloats(data, &data)).ok());
    EXPECT_EQ(Count(Read(files.of(rank)), "\"way\":\"failed\""), 1);
    Allreduce(engine, 10, "next");
  });
}

TEST(Timeline, AJobOfOneRank) {
  const Files files;
  RunRanks(1, [&files](int, Engine& engine) {
    ASSERT_TRUE(engine.StartTimeline(files.of(0)).ok());
    Allreduce(engine, 10, "alone");
  });
  EXPECT_EQ(Count(Read(files.of(0)), R"("name":"alone")"), 2);
}

TEST(Timeline, AFileThatCannotBeWritten) {
  RunRanks(1, [](int, Engine& engine) {
    const Status missing = engine.StartTimeline("/nowhere/timeline.json");
    EXPECT_EQ(missing.message(),
              "cannot write a timeline to '/nowhere/timeline.json': No such file or directory");
    ASSERT_TRUE(engine.StartTimeline("/dev/full").ok());
    Allreduce(engine, 10, "lost");
    EXPECT_EQ(engine.StopTimeline().message(),
              "the timeline '/dev/full' is not complete: No space left on device");
  });
}

TEST(Timeline, AForkedChildLeavesItAlone) {
  const Files files;
  RunRanks(1, [&files](int, Engine& engine) {
    ASSERT_TRUE(engine.StartTimeline(files.of(0)).ok());
    Allreduce(engine, 10, "parent");
    const pid_t child = ::fork();
    if (child == 0) {
      const bool refused = !engine.StopTimeline().ok();
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_TRUE(engine.StopTimeline().ok());
    EXPECT_EQ(Count(Read(files.of(0)), R"("name":"parent")"), 2);
  });
}

}  // namespace
}  // namespace tf_smddp::testing
