// Steps that fail on some rank: every rank sees exactly one failed step for it, with the reason, and then the
// ranks' next steps pair up.
#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/step.h"

namespace tf_smddp::testing {
namespace {

// The tensors of a step: on the small path, in one batch with others, and in several chunks.
constexpr std::size_t kCounts[] = {3, 2000, 40000};
constexpr std::uint32_t kTensors = 3;

// The input of a rank's `turn`-th successful step. The results are right only if all ranks have the same
// turn.
float Value(int turn, std::uint32_t index) {
  return static_cast<float>(turn % 1000 + static_cast<int>(index));
}

struct Tensors {
  explicit Tensors(int turn) {
    for (std::uint32_t i = 0; i < kTensors; ++i) data.emplace_back(kCounts[i], Value(turn, i));
  }
  std::vector<std::vector<float>> data;
};

// Submits tensor `index` of the step's group.
void SubmitTensor(Step& step, Tensors* tensors, std::uint64_t ticket, std::uint32_t index) {
  std::vector<float>& data = tensors->data[index];
  step.Submit(InGroup(AllreduceFloats(data, &data), ticket, index, kTensors));
}

// A step as it should be. Ranks that were at different turns would get other sums.
Status GoodStep(Engine& engine, int turn) {
  Tensors tensors(turn);
  std::vector<float> root(7, static_cast<float>(turn));
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  for (std::uint32_t i = 0; i < kTensors; ++i) SubmitTensor(step, &tensors, ticket, i);
  Request broadcast = AllreduceFloats(root, &root);
  broadcast.operation.kind = CollectiveKind::kBroadcast;
  broadcast.operation.root = RankId(0);
  step.Submit(std::move(broadcast));
  const Status status = step.End();
  if (!status.ok()) return status;
  const auto size = static_cast<float>(engine.config().size);
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    for (const float value : tensors.data[i]) {
      EXPECT_EQ(value, size * Value(turn, i)) << "rank " << engine.config().rank << " at turn " << turn;
      if (value != size * Value(turn, i)) return Internal("the steps do not pair up");
    }
  }
  EXPECT_EQ(root[0], static_cast<float>(turn));
  return {};
}

// Ways for a step to fail on one rank, with "disk full" as the reason, or one that names it.
struct Cause {
  const char* name;
  const char* text;  // part of every rank's error
  std::function<Status(Engine&, int turn)> run;
};

Status FailBeforeAnything(Engine& engine, int) {
  Step step(engine);
  step.Fail("disk full", {kWorld});
  return step.End();
}

Status FailWithAPartSubmitted(Engine& engine, int turn) {
  Tensors tensors(turn);
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  SubmitTensor(step, &tensors, ticket, 0);
  SubmitTensor(step, &tensors, ticket, 2);
  step.Fail("disk full", {kWorld});
  return step.End();
}

Status CancelWhatWaits(Engine& engine, int turn) {
  Tensors tensors(turn);
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  SubmitTensor(step, &tensors, ticket, 1);
  engine.CancelAll("disk full");
  // Whether or not the request was ready by then, this rank will never submit the whole group.
  engine.EndGroup(kWorld, ticket, /*failed=*/true, "disk full");
  step.Fail("disk full", {});
  return step.End();
}

Status EndTheGroupUnsubmitted(Engine& engine, int) {
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  step.Fail("disk full", {});  // the end of the group tells the others
  return step.End();
}

Status EndTheGroupWithATensorMissing(Engine& engine, int turn) {
  Tensors tensors(turn);
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  SubmitTensor(step, &tensors, ticket, 0);
  engine.EndGroup(kWorld, ticket, /*failed=*/false, "disk full");
  const Status status = step.End();
  return status.ok() ? Internal("disk full") : status;
}

Status BringAnotherShape(Engine& engine, int turn) {
  Tensors tensors(turn);
  tensors.data[1].resize(1999);
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  for (std::uint32_t i = 0; i < kTensors; ++i) SubmitTensor(step, &tensors, ticket, i);
  return step.End();
}

Status SubmitOneIndexTwice(Engine& engine, int turn) {
  Tensors tensors(turn), again(turn);
  Step step(engine);
  std::uint64_t ticket = 0;
  if (!step.DrawTicket(kWorld, &ticket)) return step.End();
  SubmitTensor(step, &tensors, ticket, 0);
  SubmitTensor(step, &again, ticket, 0);
  SubmitTensor(step, &tensors, ticket, 1);
  const Status status = step.End();
  return status.ok() ? Internal("submitted twice") : status;
}

Status UseANameTwice(Engine& engine, int turn) {
  Tensors tensors(turn), again(turn);
  Step step(engine);
  for (Tensors* each : {&tensors, &again})
    step.Submit(Named(AllreduceFloats(each->data[0], &each->data[0]), "loss"));
  return step.End();
}

const Cause kCauses[] = {
    {"FailBeforeAnything", "disk full", FailBeforeAnything},
    {"FailWithAPartSubmitted", "disk full", FailWithAPartSubmitted},
    {"CancelWhatWaits", "disk full", CancelWhatWaits},
    {"EndTheGroupUnsubmitted", "disk full", EndTheGroupUnsubmitted},
    {"EndTheGroupWithATensorMissing", "disk full", EndTheGroupWithATensorMissing},
    {"BringAnotherShape", "float32 [1999]", BringAnotherShape},
    {"SubmitOneIndexTwice", "submitted twice", SubmitOneIndexTwice},
    {"UseANameTwice", "two collectives with the name 'loss'", UseANameTwice},
};

class IncarnationCause : public ::testing::TestWithParam<Cause> {};

// Every second step fails on one rank or another, which may be early or late.
TEST_P(IncarnationCause, FailsOneStepOnEveryRank) {
  const Cause& cause = GetParam();
  for (const int size : {2, 3, 5}) {
    RunRanks(size, [&](int rank, Engine& engine) {
      std::mt19937 random(static_cast<unsigned>(rank + 1));
      int turn = 0;
      for (int attempt = 0; attempt < (kSanitized ? 12 : 60) && !::testing::Test::HasFailure(); ++attempt) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4 == 0 ? random() % 3000 : 0));
        const bool fails = attempt % 2 == 1;
        const bool here = fails && attempt / 2 % size == rank;
        const Status status = here ? cause.run(engine, turn) : GoodStep(engine, turn);
        EXPECT_EQ(status.ok(), !fails)
            << "rank " << rank << ", attempt " << attempt << ": " << status.message();
        if (fails && !here) {
          EXPECT_NE(status.message().find(cause.text), std::string::npos) << status.message();
        }
        if (status.ok()) ++turn;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Causes, IncarnationCause, ::testing::ValuesIn(kCauses),
                         [](const auto& info) { return std::string(info.param.name); });

// Several ranks fail in one attempt, at once or with a delay between them: still one failed step for each
// rank.
TEST(Incarnation, SeveralRanksFailInOneAttempt) {
  for (const int size : {2, 3, 5}) {
    RunRanks(size, [&](int rank, Engine& engine) {
      std::mt19937 common(17);                                // the same on all ranks
      std::mt19937 own(static_cast<unsigned>(rank) * 7 + 1);  // of this rank
      int turn = 0;
      for (int attempt = 0; attempt < (kSanitized ? 30 : 300) && !::testing::Test::HasFailure(); ++attempt) {
        const unsigned saboteurs = common() % 3 == 0 ? common() % (1u << size) : 0;
        const std::size_t how = common() % std::size(kCauses);
        std::this_thread::sleep_for(std::chrono::microseconds(own() % 4 == 0 ? own() % 2000 : 0));
        const bool here = (saboteurs >> rank & 1) != 0;
        // A shape that all ranks bring alike is no failure: only the first saboteur fails by one.
        const std::size_t own_way = (how + static_cast<std::size_t>(rank)) % 5;
        const Status status = here ? kCauses[own_way].run(engine, turn) : GoodStep(engine, turn);
        ASSERT_EQ(status.ok(), saboteurs == 0)
            << "rank " << rank << ", attempt " << attempt << ": " << status.message();
        if (status.ok()) ++turn;
      }
    });
  }
}

TEST(Incarnation, TwoHundredFailuresInARow) {
  const int size = 3;
  RunRanks(size, [&](int rank, Engine& engine) {
    ASSERT_TRUE(GoodStep(engine, 0).ok());
    for (int attempt = 0; attempt < 200; ++attempt) {
      const bool here = attempt * 7 % size == rank;
      const Cause& cause = kCauses[static_cast<std::size_t>(attempt) % std::size(kCauses)];
      const Status status = here ? cause.run(engine, 1) : GoodStep(engine, 1);
      ASSERT_FALSE(status.ok()) << attempt;
      if (!here) {
        ASSERT_NE(status.message().find(cause.text), std::string::npos) << status.message();
      }
    }
    for (int turn = 1; turn < 4; ++turn) ASSERT_TRUE(GoodStep(engine, turn).ok());
  });
}

// The others have nothing pending when rank 0 fails, and nothing for long after: their next step is the one
// that failed.
TEST(Incarnation, ARankIsOwedTheFailure) {
  RunRanks(3, [](int rank, Engine& engine) {
    ASSERT_TRUE(GoodStep(engine, 0).ok());
    Status status;
    if (rank == 0) {
      status = FailBeforeAnything(engine, 1);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * rank));
      status = GoodStep(engine, 1);
    }
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("disk full"), std::string::npos) << status.message();
    EXPECT_TRUE(GoodStep(engine, 1).ok());
  });
}

// On one host it fails the step of all. Between hosts the others have their outputs, and fail a step later.
TEST(Incarnation, AnOutputThatOneRankCannotAllocate) {
  constexpr std::size_t kCount = 5'000, kSize = 3;
  RunRanks(kSize, [](int rank, Engine& engine) {
    ASSERT_TRUE(GoodStep(engine, 0).ok());
    std::vector<float> data(kCount, static_cast<float>(rank)), output(kSize * kCount);
    Request request = MakeRequest(CollectiveKind::kAllgather, DType::kFloat32, ReduceOp::kSum, data.data(),
                                  nullptr, kCount);
    request.allocate = [&](const std::vector<std::int64_t>&, void** to) {
      *to = output.data();
      return rank == 1 ? Internal("no room here") : Status();
    };
    int failures = 0;
    {
      Step step(engine);
      step.Submit(std::move(request));
      const Status status = step.End();
      if (!status.ok()) ++failures;
      if (rank == 1) {
        EXPECT_NE(status.message().find("no room here"), std::string::npos) << status.message();
      } else if (status.ok()) {
        EXPECT_EQ(output.back(), static_cast<float>(kSize - 1));
      }
    }
    for (int turn = 1; turn < 4;) {
      const Status status = GoodStep(engine, turn);
      if (status.ok()) {
        ++turn;
      } else {
        ASSERT_EQ(++failures, 1) << status.message();
      }
    }
    EXPECT_EQ(failures, 1);
  });
}

// A rank that is owed a failure fails itself in that very step, before it has touched the engine.
TEST(Incarnation, ARankThatIsOwedFailsByItself) {
  for (std::size_t how = 0; how < 5; ++how) {
    SCOPED_TRACE(kCauses[how].name);
    RunRanks(2, [how](int rank, Engine& engine) {
      ASSERT_TRUE(GoodStep(engine, 0).ok());
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_FALSE((rank == 0 ? FailBeforeAnything(engine, 1) : kCauses[how].run(engine, 1)).ok());
      for (int turn = 1; turn < 4; ++turn) {
        const Status status = GoodStep(engine, turn);
        ASSERT_TRUE(status.ok()) << "rank " << rank << " at turn " << turn << ": " << status.message();
      }
    });
  }
}

// Eager execution: each request is a step of its own, known by no number.
TEST(Incarnation, EagerRequests) {
  const int size = 3;
  RunRanks(size, [&](int rank, Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(rank));
    int turn = 0;
    for (int attempt = 0; attempt < (kSanitized ? 30 : 200); ++attempt) {
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
      std::vector<float> data(attempt % 2 == 0 ? 5 : 3000, static_cast<float>(turn));
      Request request = AllreduceFloats(data, &data);
      const bool fails = attempt % 5 == 4, here = fails && attempt / 5 % size == rank;
      Status status;
      if (here && attempt % 2 == 0) {
        engine.FailStep(kWorld, kNoStep, "bad value");
        status = Internal("bad value");
      } else {
        if (here) request.shape = {4};
        status = Await(engine, std::move(request));
      }
      ASSERT_EQ(status.ok(), !fails) << "rank " << rank << ", attempt " << attempt << ": "
                                     << status.message();
      if (!status.ok()) continue;
      ASSERT_EQ(data[0], static_cast<float>(size * turn));
      ++turn;
    }
  });
}

// Ops of a failed step that run late are refused, and fail nothing else.
TEST(Incarnation, LateRequestsOfAFailedStepAreRefused) {
  RunRanks(2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0f);
    Request late = AllreduceFloats(data, &data);
    {
      Step step(engine);
      late.step = step.id();
      if (rank == 0) {
        step.Fail("disk full", {kWorld});
      } else {
        step.Submit(AllreduceFloats(data, &data));
      }
      EXPECT_FALSE(step.End().ok());
    }
    for (int turn = 0; turn < 20; ++turn) {
      const Status status = Await(engine, late);
      EXPECT_NE(status.message().find("disk full"), std::string::npos) << status.message();
      std::uint64_t ticket = 0;
      EXPECT_FALSE(engine.DrawTicket(kWorld, late.step, &ticket).ok());
      engine.FailStep(kWorld, late.step, "again");
      const Status good = GoodStep(engine, turn);
      ASSERT_TRUE(good.ok()) << good.message();
    }
  });
}

TEST(Incarnation, StaleTicketsAreRefused) {
  RunRanks(2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0f), flag(1, 1.0f);
    const std::uint64_t stale = DrawTicket(engine);
    ASSERT_TRUE(Await(engine, Named(AllreduceFloats(flag, &flag), "both have drawn")).ok());
    EXPECT_FALSE((rank == 0 ? FailBeforeAnything(engine, 0) : GoodStep(engine, 0)).ok());
    const Status status = Await(engine, InGroup(AllreduceFloats(data, &data), stale, 0, 1));
    EXPECT_NE(status.message().find("disk full"), std::string::npos) << status.message();
    engine.EndGroup(kWorld, stale, /*failed=*/true, "stale");
    for (int turn = 0; turn < 5; ++turn) ASSERT_TRUE(GoodStep(engine, turn).ok());
  });
}

TEST(Incarnation, AFailureWithoutAReasonIsOne) {
  RunRanks(2, [](int rank, Engine& engine) {
    if (rank == 0) engine.FailStep(kWorld, kNoStep, "");
    std::vector<float> data(10, 1.0f);
    if (rank == 1) {
      EXPECT_FALSE(Await(engine, AllreduceFloats(data, &data)).ok());
    }
    for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(GoodStep(engine, turn).ok());
  });
}

// A request that has met all its peers completes, whatever is cancelled.
TEST(Incarnation, WhatIsReadyCompletes) {
  RunRanks(2, [](int, Engine& engine) {
    for (int round = 0; round < 20; ++round) {
      // Names of their own: nothing is deferred, so each arrives when it is submitted.
      const std::string name = "round " + std::to_string(round);
      std::vector<float> data(300000, 1.0f), flag(1, 1.0f);
      std::promise<Status> outcome;
      Request request = Named(AllreduceFloats(data, &data), name);
      request.done = [&outcome](const Status& status) { outcome.set_value(status); };
      const std::uint64_t id = engine.Submit(std::move(request));
      ASSERT_TRUE(Await(engine, Named(AllreduceFloats(flag, &flag), name + " flag")).ok());
      engine.Cancel(id, "too late");
      engine.CancelAll("too late");
      const Status status = outcome.get_future().get();
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(data[299999], 2.0f);
      engine.Cancel(id, "much too late");
    }
  });
}

// OK on one rank means OK on all, and the result is there, also when a step fails in the middle of large
// batches.
TEST(Incarnation, AllRanksSeeTheSameEnds) {
  const int size = 3, rounds = kSanitized ? 10 : 60;
  constexpr std::uint32_t kMany = 8;
  std::vector<std::vector<std::vector<bool>>> ends(
      rounds, std::vector<std::vector<bool>>(size, std::vector<bool>(kMany)));
  RunRanks(
      size,
      [&](int rank, Engine& engine) {
        for (int round = 0; round < rounds; ++round) {
          std::vector<std::vector<float>> data(kMany, std::vector<float>(60000, 1.0f));
          std::vector<Status> statuses(kMany);
          Step step(engine);
          std::uint64_t ticket = 0;
          if (!step.DrawTicket(kWorld, &ticket)) continue;  // the saboteur was faster: nothing ends well here
          std::vector<Request> requests;
          for (std::uint32_t i = 0; i < kMany; ++i) {
            if (rank == round % size && i == kMany - 1) continue;  // so that the step cannot be whole
            Request request = InGroup(AllreduceFloats(data[i], &data[i]), ticket, i, kMany);
            request.step = step.id();
            requests.push_back(std::move(request));
          }
          std::thread saboteur([&] {
            if (rank != round % size) return;
            std::this_thread::sleep_for(std::chrono::microseconds(round * 50));
            engine.FailStep(kWorld, step.id(), "on purpose");
          });
          statuses = AwaitAll(engine, std::move(requests));
          saboteur.join();
          for (std::size_t i = 0; i < statuses.size(); ++i) {
            ends[static_cast<std::size_t>(round)][static_cast<std::size_t>(rank)][i] = statuses[i].ok();
            if (statuses[i].ok()) {
              for (const float value : data[i]) ASSERT_EQ(value, 3.0f);
            } else {
              ASSERT_NE(statuses[i].message().find("on purpose"), std::string::npos) << statuses[i].message();
            }
          }
          if (rank == round % size) step.Fail("on purpose", {});
        }
      },
      [](int, Config* config) { config->bucket_cap_bytes = 256 << 10, config->chunk_bytes = 64 << 10; });
  for (const auto& round : ends) {
    EXPECT_EQ(round[0], round[1]);
    EXPECT_EQ(round[0], round[2]);
  }
}

// Spans of small tensors, which peers may still touch after a failure, come back when the next incarnation
// begins.
TEST(Incarnation, FailuresLeakNoArenaMemory) {
  RunRanks(2, [](int rank, Engine& engine) {
    ASSERT_TRUE(GoodStep(engine, 0).ok());
    const std::uint64_t before = engine.arena()->used_bytes();
    for (int attempt = 0; attempt < 50; ++attempt) {
      EXPECT_FALSE((rank == attempt % 2 ? FailWithAPartSubmitted(engine, 1) : GoodStep(engine, 1)).ok());
    }
    ASSERT_TRUE(GoodStep(engine, 1).ok());
    EXPECT_EQ(engine.arena()->used_bytes(), before);
  });
}

}  // namespace
}  // namespace tf_smddp::testing
