// Ranks that are alive but absent: the warning, what it says, and the end of the job.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/control/manifest.h"
#include "kernels/engine/watch/stall_report.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/usage.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

// ---- The text

Manifest Labelled(const std::string& label) {
  return MakeManifest({CollectiveKind::kAllreduce}, 0, 0, {4}, label);
}

StallReport ReportAbout(const AbsentRank& absent) {
  StallReport report;
  report.rank = 0;
  report.seconds = 63.2;
  report.requests.push_back({Labelled("a"), kWorld, false});
  report.absent.push_back(absent);
  return report;
}

AbsentRank Absent(char state, std::uint64_t pending) {
  AbsentRank absent;
  absent.rank = 2;
  absent.pid = 77;
  absent.state = state;
  absent.cpu_share = 0;
  absent.submitted = true;
  absent.last = Labelled("b");
  absent.last_seconds = 61;
  absent.pending = pending;
  return absent;
}

void ExpectParts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' has no '" << part << "'";
  }
}

TEST(StallReport, AStoppedRank) {
  ExpectParts(
      DescribeStall(ReportAbout(Absent('T', 0))),
      {"rank 0 has waited 63 s for rank 2 at allreduce 'a' sum float32 [4].",
       "Rank 2 (pid 77) is stopped; it last submitted allreduce 'b' sum float32 [4] 61 s ago, which is done.",
       "Likely cause: rank 2 is stopped (SIGSTOP, Ctrl-Z or a debugger); `kill -CONT 77` continues it."});
}

TEST(StallReport, ARankThatHasSubmittedNothing) {
  AbsentRank absent = Absent('S', 0);
  absent.submitted = false;
  absent.cpu_share = 0.97;
  ExpectParts(DescribeStall(ReportAbout(absent)),
              {"Rank 2 (pid 77) runs (97 % of a core); it has submitted nothing yet.",
               "Likely cause: rank 2 still prepares its first step"});
}

TEST(StallReport, RanksThatWaitForEachOther) {
  AbsentRank absent = Absent('S', 1);
  absent.waits_for = RankSet({0});
  ExpectParts(DescribeStall(ReportAbout(absent)),
              {"sleeps (0 % of a core)", "61 s ago, and waits for rank 0.",
               "Likely cause: the ranks run different collectives, or the same ones in different orders: "
               "rank 0 is at "
               "allreduce 'a' sum float32 [4], rank 2 at allreduce 'b' sum float32 [4]."});
}

TEST(StallReport, ARankThatWaitsForAnother) {
  AbsentRank absent = Absent('S', 1);
  absent.waits_for = RankSet({3});
  absent.communicator = 5;
  ExpectParts(DescribeStall(ReportAbout(absent)), {"[4] in process set 5 61 s ago, and waits for rank 3.",
                                                   "Likely cause: rank 2 is held up itself by rank 3."});
}

TEST(StallReport, ARankThatWaitsForItsDevice) {
  AbsentRank absent = Absent('S', 1);
  absent.waits_for = RankSet({2});
  ExpectParts(DescribeStall(ReportAbout(absent)),
              {"[4] 61 s ago, and waits for its device.",
               "Likely cause: rank 2 waits for its device; its own warning says more."});
}

TEST(StallReport, ADevice) {
  StallReport report = ReportAbout(Absent('S', 1));
  report.requests.front().device = "GPU 1";
  const std::string text = DescribeStall(report);
  ExpectParts(text,
              {"rank 0 has waited 63 s for GPU 1, and perhaps for rank 2, at allreduce 'a' sum float32 [4], "
               "whose calls of NCCL or copies are on a stream there. Rank 2 (pid 77) sleeps",
               "Likely cause: GPU 1, or that of another rank, still computes what was put on its streams "
               "before, or hangs; `nvidia-smi` shows"});
  report.absent.front().state = 'T';
  ExpectParts(DescribeStall(report), {"Likely cause: rank 2 is stopped"});
  report.absent.clear();
  report.timeout_seconds = 1800;
  ExpectParts(DescribeStall(report),
              {"has waited 63 s for GPU 1 at allreduce 'a'", "Likely cause: GPU 1 still computes",
               "The job ends when it makes no progress for 1800 s"});
}

TEST(StallReport, ABusyRankAndAnIdleOne) {
  AbsentRank absent = Absent('R', 0);
  absent.cpu_share = 0.5;
  ExpectParts(DescribeStall(ReportAbout(absent)),
              {"rank 2 is busy with something that the others do not do"});
  absent = Absent('S', 0);
  ExpectParts(DescribeStall(ReportAbout(absent)), {"rank 2 waits for something else"});
  absent = Absent('D', 0);
  ExpectParts(DescribeStall(ReportAbout(absent)),
              {"rank 2 waits for a device or a file system that does not answer"});
  absent.pid = 0;
  absent.state = 0;
  absent.cpu_share = -1;
  ExpectParts(DescribeStall(ReportAbout(absent)), {"Rank 2 is alive; it last"});
  absent.on_this_host = false;
  ExpectParts(DescribeStall(ReportAbout(absent)), {"Likely cause: ranks of another host are late"});
  StallReport report = ReportAbout(absent);
  report.absent.push_back(Absent('R', 0));
  report.absent.back().rank = 3;
  report.absent.back().cpu_share = 0.5;
  ExpectParts(DescribeStall(report), {"Likely cause: rank 3 is busy"});
}

TEST(StallReport, ManyRequestsAndManyRanks) {
  StallReport report = ReportAbout(Absent('S', 1));
  report.absent.push_back(Absent('T', 3));
  report.absent.back().rank = 3;
  for (int i = 4; i < 14; ++i) {
    report.absent.push_back(Absent('S', 1));
    report.absent.back().rank = i;
  }
  for (const char* label : {"c", "d", "e", "f"}) report.requests.push_back({Labelled(label), kWorld, false});
  report.timeout_seconds = 1800;
  ExpectParts(
      DescribeStall(report),
      {"for ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 at allreduce 'a' sum float32 [4]; allreduce 'c' sum "
       "float32 [4]; allreduce 'd' sum float32 [4]; and 2 more.",
       "The other 4 are not shown.",
       // The one that explains the others.
       "Likely cause: rank 3 is stopped",
       "The job ends when they make no progress for 1800 s (SMDDP_STALL_TIMEOUT)."});
}

// ---- Ranks as processes

// Sanitizers slow the start of a process down; times between ranks stay.
constexpr int kWarningMs = 400;

Limit Times(int warning_ms, int timeout_ms) {
  return [=](int, Config* config) {
    config->stall_warning_ms = warning_ms;
    config->stall_timeout_ms = timeout_ms;
  };
}

void SleepMs(int ms) { ::usleep(static_cast<useconds_t>(ms) * 1000); }

// An allreduce of the name `name`, which may be anywhere in the program's order.
std::future<Status> Begin(Engine& engine, const std::string& name, CommunicatorId communicator = kWorld) {
  const auto data = std::make_shared<std::vector<float>>(10, 1.0f);
  const auto outcome = std::make_shared<std::promise<Status>>();
  Request request = AllreduceFloats(*data, data.get());
  request.communicator = communicator;
  request.label = name;
  request.pairing.kind = Pairing::kName;
  request.pairing.name = name;
  request.done = [data, outcome](const Status& status) { outcome->set_value(status); };
  std::future<Status> future = outcome->get_future();
  engine.Submit(std::move(request));
  return future;
}

Status Allreduce(Engine& engine, const std::string& name, CommunicatorId communicator = kWorld) {
  return Begin(engine, name, communicator).get();
}

int CountLines(const std::string& log, const std::string& part) {
  int lines = 0;
  for (std::size_t at = log.find(part); at != std::string::npos; at = log.find(part, at + 1)) ++lines;
  return lines;
}

double Now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Submissions of ranks, and between which moments each was: for each other and for the test, which are all
// processes. To be made before them.
class Submissions {
 public:
  Submissions() {
    void* const memory =
        ::mmap(nullptr, kMostRanks * sizeof(Span), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Require(memory != MAP_FAILED, "mmap");
    spans_ = new (memory) Span[kMostRanks]{};
  }
  ~Submissions() { ::munmap(spans_, kMostRanks * sizeof(Span)); }
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  std::future<Status> Submit(Engine& engine, const std::string& name) const {
    Span& span = spans_[engine.config().rank];
    span.before = Now();
    std::future<Status> outcome = Begin(engine, name);
    span.after = Now();
    return outcome;
  }
  // Waits until `rank` has submitted.
  void Await(int rank) const {
    while (after(rank) == 0) SleepMs(1);
  }
  double before(int rank) const { return spans_[rank].before; }
  double after(int rank) const { return spans_[rank].after; }

 private:
  static constexpr int kMostRanks = 3;
  struct Span {
    std::atomic<double> before{0}, after{0};
  };
  Span* spans_;
};

// The parts of `log` between `from` and the end of its line.
std::vector<std::string> Rests(const std::string& log, const std::string& from) {
  std::vector<std::string> rests;
  for (std::size_t at = log.find(from); at != std::string::npos; at = log.find(from, at)) {
    at += from.size();
    rests.push_back(log.substr(at, log.find('\n', at) - at));
  }
  return rests;
}

// The seconds that follow `words` in `text`, to a tenth below 10 and to one above.
double SecondsAfter(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << "'" << text << "' has no '" << words << "'";
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + words.size(), nullptr);
}
constexpr double kRounded = 0.06;  // with the clock's part

// Waits until the process `pid` is stopped.
void AwaitStop(pid_t pid) {
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
}

TEST(Stall, AnAbsentRankIsNamedOnce) {
  // Rank 0 publishes that it waits half of this, or more, before rank 1 looks whether it does.
  constexpr int kLimitMs = 2000;
  constexpr double kLimit = kLimitMs / 1000.0;
  const Submissions first, second;
  const std::vector<RankEnd> ends = RunLimited(3, Times(kLimitMs, 0), [&](Engine& engine) {
    const int rank = engine.config().rank;
    const Status status = first.Submit(engine, "first").get();
    if (!status.ok()) return status;
    if (rank > 0) second.Await(rank - 1);
    if (rank == 2) SleepMs(5 * kLimitMs / 2);
    return second.Submit(engine, "second").get();
  });
  const double end = Now();
  for (const RankEnd& each : ends) EXPECT_EQ(each.error, "");
  const std::string& log = ends[0].log;
  ExpectParts(log, {"for rank 2 at allreduce 'second' sum float32 [10]", "Rank 2 (pid ",
                    " sleeps (0 % of a core); it last submitted allreduce 'first' sum float32 [10] ",
                    " s ago, which is done. Likely cause: rank 2 waits for something else"});
  // The warnings come after the limit, twice the limit, four times the limit, and so on.
  double limit = kLimit;
  const std::vector<std::string> warnings = Rests(log, "[tf_smddp rank 0 warning] rank 0 has waited ");
  EXPECT_GE(warnings.size(), 1u) << log;
  for (const std::string& warning : warnings) {
    const double waited = SecondsAfter(warning, "");
    EXPECT_GT(waited, limit - kRounded) << log;
    EXPECT_LT(waited, second.after(2) - second.before(0) + kRounded) << log;
    const double ago = SecondsAfter(warning, "it last submitted allreduce 'first' sum float32 [10] ");
    EXPECT_GT(ago, waited - 2 * kRounded) << log;
    EXPECT_LT(ago, waited + second.after(0) - first.before(2) + 2 * kRounded) << log;
    limit *= 2;
  }
  const double wait = SecondsAfter(log, "[tf_smddp rank 0 warning] rank 0 continues after a wait of about ");
  EXPECT_GT(wait, second.before(2) - second.after(0) - kRounded) << log;
  EXPECT_LT(wait, end - second.before(0) + kRounded) << log;
  EXPECT_EQ(ends[1].log, "") << "all ranks know the same: one of them says it";
  EXPECT_EQ(ends[2].log, "");
}

TEST(Stall, ShortWaitsAreNoStalls) {
  // Together they are longer than each of the limits.
  const std::vector<RankEnd> ends = RunLimited(2, Times(1500, 3000), [](Engine& engine) {
    for (int i = 0; i < 40; ++i) {
      if (engine.config().rank == 1) SleepMs(100);
      const Status status = Allreduce(engine, "step");
      if (!status.ok()) return status;
    }
    return Status();
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error + end.log, "");
}

TEST(Stall, AStoppedRank) {
  constexpr int kLimitMs = 1200;
  const Submissions step;
  LimitedRanks ranks(3, Times(kLimitMs, 0), [&](Engine& engine) {
    const int rank = engine.config().rank;
    if (rank == 1) step.Await(0);
    if (rank == 2) ::raise(SIGSTOP);
    return step.Submit(engine, "step").get();
  });
  AwaitStop(ranks.pid(2));
  step.Await(1);
  SleepMs(5 * kLimitMs / 2);
  ::kill(ranks.pid(2), SIGCONT);
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  const std::string pid = std::to_string(ranks.pid(2));
  ExpectParts(ends[0].log, {"for rank 2 at allreduce 'step'",
                            "Rank 2 (pid " + pid +
                                ") is stopped; it has submitted nothing yet. Likely cause: rank 2 is "
                                "stopped (SIGSTOP, Ctrl-Z or a debugger); `kill -CONT " +
                                pid + "` continues it.",
                            "continues after"});
  EXPECT_EQ(ends[1].log, "");
}

TEST(Stall, WhenTheLowestRankThatWaitsIsStoppedTheNextSpeaks) {
  LimitedRanks ranks(3, Times(kWarningMs, 0), [](Engine& engine) {
    const int rank = engine.config().rank;
    if (rank == 2) SleepMs(7 * kWarningMs);
    std::future<Status> outcome = Begin(engine, "step");
    if (rank == 0) {
      SleepMs(5 * kWarningMs / 4);  // it has said that it waits
      ::raise(SIGSTOP);
    }
    return outcome.get();
  });
  AwaitStop(ranks.pid(0));
  SleepMs(4 * kWarningMs);
  ::kill(ranks.pid(0), SIGCONT);
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  ExpectParts(ends[1].log, {"rank 1 has waited", "for rank 2 at allreduce 'step'"});
}

TEST(Stall, ARankThatIsStoppedAtARandomMomentOfASmallRequest) {
  constexpr int kStops = 3;
  LimitedRanks ranks(2, Times(kWarningMs, 0), [](Engine& engine) {
    constexpr std::int64_t kCount = 1 << 10;
    auto* data = static_cast<float*>(engine.arena()->Allocate(kCount * sizeof(float)));
    std::fill_n(data, kCount, 0.0f);
    std::atomic<bool> over{false};
    std::thread stops([&over, rank = engine.config().rank] {
      for (int stop = 0; rank == 1 && stop < kStops; ++stop) {
        SleepMs(50);
        ::raise(SIGSTOP);
      }
      over = rank == 1;
    });
    Status outcome;
    while (outcome.ok() && data[0] == 0.0f) {
      data[0] = over ? 1.0f : 0.0f;
      std::atomic<bool> ended{false};
      Request request =
          MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, data, data, kCount);
      request.caller_progresses = request.callback_is_trivial = true;
      request.done = [&](const Status& status) {
        outcome = status;
        ended = true;
      };
      engine.SubmitAndProgress(kWorld, Caller::kBlocking, [&] { engine.Submit(std::move(request)); }, ended);
      while (!ended) SleepMs(1);
    }
    stops.join();
    return outcome;
  });
  for (int stop = 0; stop < kStops; ++stop) {
    AwaitStop(ranks.pid(1));
    SleepMs(3 * kWarningMs);
    ::kill(ranks.pid(1), SIGCONT);
  }
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  EXPECT_GE(CountLines(ends[0].log, "for rank 1 at allreduce 'test'"), kStops) << ends[0].log;
  EXPECT_GE(CountLines(ends[0].log, "rank 1 is stopped"), kStops) << ends[0].log;
}

TEST(Stall, ARankThatIsStoppedInABatch) {
  LimitedRanks ranks(3, Times(kWarningMs, 0), [](Engine& engine) {
    std::vector<float> input(10, 1.0f), output;
    Request request =
        MakeRequest(CollectiveKind::kAllgather, DType::kFloat32, ReduceOp::kSum, input.data(), nullptr, 10);
    request.allocate = [&](const std::vector<std::int64_t>&, void** place) {
      if (engine.config().rank == 1) ::raise(SIGSTOP);
      output.resize(30);
      *place = output.data();
      return Status();
    };
    return Await(engine, std::move(request));
  });
  AwaitStop(ranks.pid(1));
  SleepMs(4 * kWarningMs);
  ::kill(ranks.pid(1), SIGCONT);
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  const std::string log = ends[0].log + ends[2].log;
  ExpectParts(
      log, {"at allgather 'test'", ", which all ranks have submitted.", "Likely cause: rank 1 is stopped"});
}

TEST(Stall, ARankThatIsStoppedWhileAnIncarnationEnds) {
  LimitedRanks ranks(2, Times(kWarningMs, 0), [](Engine& engine) {
    Status status = Allreduce(engine, "first");
    if (engine.config().rank == 1) {
      ::raise(SIGSTOP);
      return Status();  // it is told of the failure by its next step, which is none
    }
    SleepMs(100);  // the other has stopped
    engine.FailStep(kWorld, 5, "on purpose");
    SleepMs(100);  // this rank has let go of the incarnation
    std::future<Status> outcome = Begin(engine, "second");
    SleepMs(3 * kWarningMs);
    engine.Abort("enough");
    outcome.get();
    return Status();
  });
  AwaitStop(ranks.pid(1));
  SleepMs(5 * kWarningMs);
  ::kill(ranks.pid(1), SIGCONT);
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  ExpectParts(ends[0].log,
              {"rank 0 has waited", "for rank 1 at allreduce 'second'", "Likely cause: rank 1 is stopped"});
}

TEST(Stall, ADeferredRequestNamesWhoHoldsItsPlace) {
  LimitedRanks ranks(2, Times(kWarningMs, 0), [](Engine& engine) {
    // Uses 0 and 2 of one key share a place.
    for (int i = 0; i < 2; ++i) {
      const Status status = Allreduce(engine, "key");
      if (!status.ok()) return status;
    }
    std::vector<std::uint64_t> tickets;
    for (int i = 0; i < 3; ++i) tickets.push_back(DrawTicket(engine));
    if (engine.config().rank == 1) ::raise(SIGSTOP);
    std::vector<float> data(10, 1.0f);
    std::vector<std::vector<float>> outputs(3, std::vector<float>(10));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 3; ++i) {
      requests.push_back(InGroup(AllreduceFloats(data, &outputs[i]), tickets[i], 0, 1));
      requests.back().label = "use " + std::to_string(i);
    }
    for (const Status& status : AwaitAll(engine, std::move(requests))) {
      if (!status.ok()) return status;
    }
    return Status();
  });
  AwaitStop(ranks.pid(1));
  SleepMs(3 * kWarningMs);
  ::kill(ranks.pid(1), SIGCONT);
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  ExpectParts(ends[0].log,
              {"for rank 1 at allreduce 'use 0'", "'use 1'", "'use 2'", "Likely cause: rank 1 is stopped"});
}

TEST(Stall, DifferentCollectivesEndTheJob) {
  const auto begin = Clock::now();
  const Submissions step;
  const std::vector<RankEnd> ends = RunLimited(2, Times(kWarningMs, 1500), [&](Engine& engine) {
    const int rank = engine.config().rank;
    if (rank == 1) step.Await(0);
    return step.Submit(engine, rank == 0 ? "apples" : "pears").get();
  });
  EXPECT_GT(Clock::now() - begin, std::chrono::milliseconds(1500 / 2));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(kSanitized ? 15 : 6));
  for (const RankEnd& end : ends) {
    ExpectParts(end.error,
                {"no progress for 0.8 s (half of SMDDP_STALL_TIMEOUT, since the ranks wait for each other)",
                 "the same ones in different orders", "'apples'", "'pears'"});
  }
  ExpectParts(ends[0].log, {"warning] rank 0 has waited", "and waits for rank 0",
                            "rank 0 is at allreduce 'apples'", "rank 1 at allreduce 'pears'"});
  EXPECT_EQ(CountLines(ends[1].log, "warning]"), 0) << ends[1].log;
}

TEST(Stall, ATimeoutWithoutAWarning) {
  const std::vector<RankEnd> ends = RunLimited(2, Times(0, 1000), [](Engine& engine) {
    if (engine.config().rank == 1) SleepMs(2500);
    return Allreduce(engine, "step");
  });
  for (const RankEnd& end : ends)
    ExpectParts(end.error, {"no progress for 1.0 s", "for rank 1 at allreduce 'step'"});
  EXPECT_EQ(CountLines(ends[0].log, "warning]"), 0) << ends[0].log;
}

TEST(Stall, NeverMeansNever) {
  const std::vector<RankEnd> ends = RunLimited(2, Times(0, 0), [](Engine& engine) {
    for (const std::string& name : ThreadNames()) {
      if (name == "smddp-stall") return Internal("there is nothing to watch, but a thread for it");
    }
    if (engine.config().rank == 1) SleepMs(1000);
    return Allreduce(engine, "step");
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error + end.log, "");
}

// Note [Progress].

void ComputeMs(int ms) {
  const auto until = Clock::now() + std::chrono::milliseconds(ms);
  while (Clock::now() < until) {
  }
}

TEST(Stall, ARankThatComputesMakesProgress) {
  const std::vector<RankEnd> ends = RunLimited(2, Times(kWarningMs, 1000), [](Engine& engine) {
    if (engine.config().rank == 1) ComputeMs(2200);
    return Allreduce(engine, "step");
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  ExpectParts(ends[0].log, {"Rank 1 (pid ", " runs (", "Likely cause: rank 1 still prepares its first step"});
}

TEST(Stall, ARankOfAnotherHostThatComputesMakesProgress) {
  ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", "2", 1), 0);  // 0 and 2 are on one host, 1 on the other
  const std::vector<RankEnd> ends = RunLimited(3, Times(kWarningMs, 1000), [](Engine& engine) {
    const int rank = engine.config().rank;
    if (rank == 1) ComputeMs(4000);
    const Status status = Allreduce(engine, "step");
    if (rank == 2) ComputeMs(4000);  // the others wait in shutdown()
    return status;
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  ExpectParts(ends[0].log, {"for rank 1 at allreduce 'step'", "Likely cause: rank 1 is busy with something"});
  ASSERT_EQ(::unsetenv("TF_SMDDP_TEST_HOSTS"), 0);
}

TEST(Stall, ARankThatRunsOtherCollectivesMakesProgress) {
  const std::vector<RankEnd> ends = RunLimited(3, Times(0, 2000), [](Engine& engine) {
    CommunicatorId others = kWorld;
    Status status = engine.CreateCommunicator({1, 2}, &others);
    for (int i = 0; i < 42 && status.ok() && engine.config().rank != 0; ++i) {
      SleepMs(100);
      status = Allreduce(engine, "validation", others);
    }
    return status.ok() ? Allreduce(engine, "step") : status;
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error + end.log, "");
}

TEST(Stall, WhoWaitsForARankThatComputesIsNoReasonToEnd) {
  const std::vector<RankEnd> ends = RunLimited(3, Times(kWarningMs, 1000), [](Engine& engine) {
    const int rank = engine.config().rank;
    CommunicatorId front = kWorld, back = kWorld;
    Status status = engine.CreateCommunicator({0, 1}, &front);
    if (status.ok()) status = engine.CreateCommunicator({1, 2}, &back);
    if (rank == 2) ComputeMs(2500);
    if (status.ok() && rank != 0) status = Allreduce(engine, "validation", back);
    // Rank 0 waits for rank 1 alone, which waits for rank 2.
    if (status.ok() && rank != 2) status = Allreduce(engine, "step", front);
    return status;
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  ExpectParts(ends[0].log, {"for rank 1 at allreduce 'step' sum float32 [10] in process set 1.",
                            "and waits for rank 2.", "Likely cause: rank 1 is held up itself by rank 2."});
  ExpectParts(ends[1].log, {"for rank 2 at allreduce 'validation'", "Likely cause: rank 2 is busy"});
}

// A request with a timeout of its own.

Status AllreduceWithin(Engine& engine, int timeout_ms) {
  std::vector<float> data(10, 1.0f);
  Request request = AllreduceFloats(data, &data);
  request.label = "within";
  request.timeout = std::chrono::milliseconds(timeout_ms);
  return Await(engine, std::move(request));
}

TEST(Stall, AnOwnTimeoutEndsTheWaitForARankThatComputes) {
  // The watch sleeps for 5 s between two looks before the request comes.
  const std::vector<RankEnd> ends = RunLimited(2, Times(60000, 0), [](Engine& engine) {
    std::future<Status> other = Begin(engine, "other");
    SleepMs(100);
    if (engine.config().rank == 1) ComputeMs(4000);
    const Status status = AllreduceWithin(engine, 1000);
    return status.ok() ? other.get() : status;
  });
  for (const RankEnd& end : ends) {
    ExpectParts(end.error, {"the request's timeout of 1.0 s is over: rank 0 has waited 1.",
                            " s for rank 1 at allreduce 'within'"});
    EXPECT_EQ(end.error.find("SMDDP_STALL_TIMEOUT"), std::string::npos) << end.error;
  }
}

TEST(Stall, AnOwnTimeoutMayBeLonger) {
  const std::vector<RankEnd> ends = RunLimited(2, Times(0, 1000), [](Engine& engine) {
    if (engine.config().rank == 1) SleepMs(3000);
    return AllreduceWithin(engine, 20000);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error + end.log, "");
}

// Of communicators that their members make alone.

TEST(Stall, AMemberThatDoesNotComeIsNamed) {
  for (const char* const hosts : {"1", "2"}) {
    ASSERT_EQ(::setenv("TF_SMDDP_TEST_HOSTS", hosts, 1), 0);
    const std::vector<RankEnd> ends = RunLimited(3, Times(0, 1000), [](Engine& engine) {
      CommunicatorId id = kWorld;
      if (engine.config().rank != 0) return engine.CreateCommunicatorAmong({0, 1, 2}, 3, &id);
      SleepMs(6000);
      return Allreduce(engine, "step");
    });
    for (const RankEnd& end : ends) {
      ExpectParts(end.error, {"no progress for 1.0 s (SMDDP_STALL_TIMEOUT)", " s for rank",
                              " at process set ", "of ranks 0, 1, 2", "Rank 0 "});
    }
  }
  ASSERT_EQ(::unsetenv("TF_SMDDP_TEST_HOSTS"), 0);
}

// ---- The cost of watching

// Returns how often the thread `name` of this process has gone to sleep.
long Sleeps(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::ifstream(task.path() / "comm") >> found;
    if (found != name) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      const std::string key = "voluntary_ctxt_switches:";
      if (line.rfind(key, 0) == 0) return std::strtol(line.c_str() + key.size(), nullptr, 10);
    }
  }
  return -1;
}

TEST(Stall, NobodyPollsWhileNothingIsPending) {
  const std::vector<RankEnd> ends = RunLimited(2, Times(80, 0), [](Engine& engine) {
    Status status = Allreduce(engine, "step");
    SleepMs(300);
    const long before = Sleeps("smddp-stall");
    SleepMs(1000);
    const long after = Sleeps("smddp-stall");
    if (before < 0 || after != before) {
      return Internal("it woke up: " + std::to_string(before) + ", " + std::to_string(after));
    }
    // The stall watch still works afterwards: rank 0 waits for rank 1 here.
    if (engine.config().rank == 1) SleepMs(500);
    return status.ok() ? Allreduce(engine, "step") : status;
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.error, "");
  ExpectParts(ends[0].log, {"for rank 1 at allreduce 'step'"});
}

}  // namespace
}  // namespace tf_smddp::testing
