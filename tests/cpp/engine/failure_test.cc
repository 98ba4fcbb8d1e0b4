// Ranks that disagree, aborts, ranks that shut down, and bad requests; every rank is checked.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Each rank submits what `make` says; all must fail, soon, with every one of `parts` in the message.
void ExpectFailureEverywhere(int size,
                             const std::function<Request(int rank, Engine&, std::vector<float>*)>& make,
                             const std::vector<std::string>& parts) {
  Meeting meeting(size);
  RunRanks(size, [&](int rank, Engine& engine) {
    std::vector<float> data(8192, 1.0f);
    Request request = make(rank, engine, &data);
    meeting.Await();  // all have their tickets
    const auto begin = Clock::now();
    const Status status = Await(engine, std::move(request));
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "rank " << rank << ": '" << status.message() << "' has no '" << part << "'";
    }
    // Later steps succeed.
    std::vector<float> good(8192, 1.0f);
    const Status later = Await(engine, AllreduceFloats(good, &good));
    EXPECT_TRUE(later.ok()) << later.message();
    EXPECT_EQ(good[8191], static_cast<float>(size));
  });
}

Request Flat(std::vector<float>* data, std::int64_t count) {
  return MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, data->data(), data->data(),
                     count);
}

TEST(Mismatch, Shapes) {
  for (const std::int64_t count : {5, 5000}) {
    ExpectFailureEverywhere(3,
                            [&](int rank, Engine& engine, std::vector<float>* data) {
                              return InGroup(Flat(data, count + (rank == 1)), DrawTicket(engine), 0, 1);
                            },
                            {"rank 1 has", "[" + std::to_string(count) + "]",
                             "[" + std::to_string(count + 1) + "]", "group execution 0", "Likely causes"});
  }
}

TEST(Mismatch, Types) {
  ExpectFailureEverywhere(2,
                          [](int rank, Engine& engine, std::vector<float>* data) {
                            Request request = Flat(data, 4);
                            if (rank == 0) request.operation.dtype = DType::kInt32;
                            return InGroup(std::move(request), DrawTicket(engine), 0, 1);
                          },
                          {"float32 [4]", "int32 [4]"});
}

TEST(Mismatch, Ops) {
  ExpectFailureEverywhere(2,
                          [](int rank, Engine& engine, std::vector<float>* data) {
                            Request request = Flat(data, 4);
                            if (rank == 0) request.operation.op = ReduceOp::kMax;
                            return InGroup(std::move(request), DrawTicket(engine), 0, 1);
                          },
                          {"max float32", "sum float32"});
}

TEST(Mismatch, Roots) {
  ExpectFailureEverywhere(2,
                          [](int rank, Engine&, std::vector<float>* data) {
                            Request request = Flat(data, 4);
                            request.operation.kind = CollectiveKind::kBroadcast;
                            request.operation.root = RankId(rank);
                            return request;
                          },
                          {"root 0", "root 1", "collective 0"});
}

TEST(Mismatch, ABarrierIsNotABroadcast) {
  ExpectFailureEverywhere(2,
                          [](int rank, Engine&, std::vector<float>* data) {
                            if (rank == 0)
                              return MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum,
                                                 nullptr, nullptr, 0);
                            Request request = Flat(data, 4);
                            request.operation.kind = CollectiveKind::kBroadcast;
                            request.operation.root = RankId(0);
                            return request;
                          },
                          {"barrier", "broadcast"});
}

TEST(Mismatch, ScaleFactors) {
  ExpectFailureEverywhere(2,
                          [](int rank, Engine& engine, std::vector<float>* data) {
                            Request request = Flat(data, 4);
                            if (rank == 0) request.operation.prescale = 0.5;
                            return InGroup(std::move(request), DrawTicket(engine), 0, 1);
                          },
                          {"prescale 0.5"});
}

// Equal shapes do not make tensors the same.
TEST(Mismatch, Meanings) {
  const Meaning a{HashOfName("a")}, b{HashOfName("b")}, first{0, 1, 1}, third{0, 3, 3},
      third_variable{0, 1, 3};
  const struct {
    Meaning on_others, on_last;
    const char* text;
  } cases[] = {{a, b, "different names"},
               {a, {}, "different names"},
               {first, third, "are None on one rank"},
               {first, third_variable, "in another order"}};
  for (const std::int64_t count : {4, 5000}) {
    for (const auto& each : cases) {
      for (const int size : {2, 3}) {
        const auto make = [&](int rank, Engine& engine, std::vector<float>* data) {
          Request request = Flat(data, count);
          request.meaning = rank == size - 1 ? each.on_last : each.on_others;
          request.label = rank == size - 1 ? "of last" : "of others";
          return InGroup(std::move(request), DrawTicket(engine), 0, 1);
        };
        ExpectFailureEverywhere(size, make, {each.text, "'of last'", "'of others'", "The shapes agree"});
      }
    }
  }
}

// The rows of an allgather may differ, but not what a row is.
TEST(Mismatch, RowsOfAnAllgather) {
  ExpectFailureEverywhere(2,
                          [](int rank, Engine&, std::vector<float>* data) {
                            Request request = Flat(data, 4);
                            request.operation.kind = CollectiveKind::kAllgather;
                            request.shape = {rank + 1, rank == 0 ? 2 : 3};
                            request.allocate = [](const std::vector<std::int64_t>&, void**) {
                              ADD_FAILURE() << "an output was made";
                              return Status();
                            };
                            return request;
                          },
                          {"[1, 2]", "[2, 3]"});
}

TEST(Mismatch, ARankThatRunsOneCollectiveMore) {
  Meeting meeting(3);
  RunRanks(3, [&meeting](int rank, Engine& engine) {
    std::vector<float> extra(3, 1.0f), gradient(4000, 1.0f);
    std::vector<Request> requests;
    if (rank == 2) {
      Request request = InGroup(AllreduceFloats(extra, &extra), DrawTicket(engine), 0, 1);
      request.label = "metric";
      requests.push_back(std::move(request));
    }
    const std::uint64_t ticket = DrawTicket(engine);
    for (std::uint32_t i = 0; i < 2; ++i) {
      Request request = InGroup(AllreduceFloats(gradient, &gradient), ticket, i, 2);
      request.label = "gradient " + std::to_string(i);
      requests.push_back(std::move(request));
    }
    meeting.Await();  // all have their tickets
    const auto begin = Clock::now();
    for (const Status& status : AwaitAll(engine, std::move(requests))) {
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("'metric' sum float32 [3]"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("'gradient 0' sum float32 [4000]"), std::string::npos)
          << status.message();
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
    EXPECT_TRUE(Await(engine, AllreduceFloats(extra, &extra)).ok());
  });
}

TEST(Abort, InTheMiddleOfLargeBatches) {
  for (int round = 0; round < 10; ++round) {
    Meeting meeting(3);
    RunRanks(
        3,
        [&meeting, round](int rank, Engine& engine) {
          std::vector<std::vector<float>> data(12, std::vector<float>(200000, 1.0f));
          std::vector<Request> requests;
          const std::uint64_t ticket = DrawTicket(engine);
          for (std::uint32_t i = 0; i < data.size(); ++i) {
            requests.push_back(InGroup(AllreduceFloats(data[i], &data[i]), ticket, i, 12));
          }
          meeting.Await();  // all have their tickets
          std::thread saboteur;
          if (rank == round % 3) {
            saboteur = std::thread([&engine, round] {
              std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
              engine.Abort("on purpose");
            });
          }
          const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
          for (std::size_t i = 0; i < statuses.size(); ++i) {
            if (statuses[i].ok()) {
              for (const float value : data[i]) ASSERT_EQ(value, 3.0f);  // OK means that the result is there
            } else {
              EXPECT_NE(statuses[i].message().find("on purpose"), std::string::npos) << statuses[i].message();
            }
          }
          if (saboteur.joinable()) saboteur.join();
        },
        [](int, Config* config) { config->bucket_cap_bytes = 1 << 20; }, /*orderly=*/false);
  }
}

// Note [One end]: the ranks agree on which requests completed.
TEST(Abort, AllRanksSeeTheSameEnds) {
  for (int round = 0; round < 20; ++round) {
    Meeting meeting(3);
    std::mutex mu;
    std::vector<std::vector<bool>> ends;  // of each rank; guarded by mu
    RunRanks(
        3,
        [&](int rank, Engine& engine) {
          constexpr std::uint32_t kTensors = 40;
          std::vector<std::vector<float>> data;
          for (std::uint32_t i = 0; i < kTensors; ++i) data.emplace_back(i % 3 == 0 ? 20000 : 50, 1.0f);
          const std::uint64_t ticket = DrawTicket(engine);
          std::vector<Request> requests;
          for (std::uint32_t i = 0; i < kTensors; ++i) {
            requests.push_back(InGroup(AllreduceFloats(data[i], &data[i]), ticket, i, kTensors));
          }
          meeting.Await();  // all have their tickets
          std::thread saboteur([&engine, rank, round] {
            std::this_thread::sleep_for(std::chrono::microseconds(100 * round + 50 * rank));
            engine.Abort("on purpose");
          });
          std::vector<bool> mine;
          for (const Status& status : AwaitAll(engine, std::move(requests))) mine.push_back(status.ok());
          saboteur.join();
          const std::lock_guard<std::mutex> lock(mu);
          ends.push_back(mine);
        },
        [](int, Config* config) { config->bucket_cap_bytes = 128 << 10; }, /*orderly=*/false);
    ASSERT_EQ(ends.size(), 3u);
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_EQ(ends[0], ends[2]);
  }
}

TEST(Abort, IsLoggedUnlessItsProcessHasWrittenIt) {
  for (const bool written : {false, true}) {
    Meeting meeting(2);
    ::testing::internal::CaptureStderr();
    RunRanks(
        2,
        [&](int rank, Engine& engine) {
          EXPECT_EQ(engine.AbortText(), "");
          meeting.Await();
          if (rank == 1) written ? engine.AbortAfterWriting("on purpose") : engine.Abort("on purpose");
          // It comes to another host in a message.
          while (engine.AbortText().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          EXPECT_EQ(engine.AbortText(), "on purpose");
          meeting.Await();
        },
        [](int, Config* config) { config->log_level = 3; }, /*orderly=*/false);  // errors
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("[tf_smddp rank 1 error] on purpose") == std::string::npos, written) << log;
  }
}

TEST(Abort, IsFinalForEverything) {
  Meeting meeting(3);
  RunRanks(
      3,
      [&meeting](int rank, Engine& engine) {
        std::vector<float> data(100, 1.0f);
        CommunicatorId id = kWorld;
        ASSERT_TRUE(engine.CreateCommunicator({0, 1, 2}, &id).ok());
        meeting.Await();
        if (rank == 1) engine.Abort("on purpose");
        for (const CommunicatorId each : {kWorld, id}) {
          for (int again = 0; again < 2; ++again) {
            Request request = AllreduceFloats(data, &data);
            request.communicator = each;
            const Status status = Await(engine, std::move(request));
            EXPECT_NE(status.message().find("on purpose"), std::string::npos) << status.message();
          }
        }
        CommunicatorId none = kWorld;
        EXPECT_NE(engine.CreateCommunicator({0, 1}, &none).message().find("on purpose"), std::string::npos);
        engine.FailStep(kWorld, 7, "afterwards");
        engine.CancelAll("afterwards");
        std::uint64_t ticket = 0;
        static_cast<void>(engine.DrawTicket(kWorld, 8, &ticket));  // does not wait
        EXPECT_NE(engine.Leave(id).message().find("on purpose"), std::string::npos);
        EXPECT_NE(engine.Leave(id).message().find("on purpose"), std::string::npos);
      },
      {}, /*orderly=*/false);
}

TEST(Leaving, ARequestThatWaitsForARankThatHasLeft) {
  // How a rank of another host has left is not known.
  const std::string left = RanksOnHosts(3).size() == 1 ? "rank 1 called shutdown()" : "rank 1 left the job";
  for (const bool submit_first : {true, false}) {
    RunRanks(
        3,
        [submit_first, &left](int rank, Engine& engine) {
          std::vector<float> data(100, 1.0f);
          if (rank == 1) {
            if (submit_first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
            EXPECT_TRUE(engine.Shutdown().ok());
            return;
          }
          if (!submit_first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
          const Status status = Await(engine, AllreduceFloats(data, &data));
          EXPECT_FALSE(status.ok());
          EXPECT_NE(status.message().find(left), std::string::npos) << status.message();
          EXPECT_NE(status.message().find("allreduce 'test' sum float32 [100]"), std::string::npos)
              << status.message();
        },
        {}, /*orderly=*/false);
  }
}

TEST(Leaving, ShutdownWhileARequestWaitsIsAnErrorForAll) {
  std::promise<void> over;  // rank 0's Shutdown
  RunRanks(
      2,
      [&over](int rank, Engine& engine) {
        std::vector<float> data(100, 1.0f);
        if (rank == 0) {
          std::promise<Status> outcome;
          Request request = AllreduceFloats(data, &data);
          request.done = [&outcome](const Status& status) { outcome.set_value(status); };
          engine.Submit(std::move(request));
          const Status shutdown = engine.Shutdown();
          over.set_value();
          EXPECT_NE(shutdown.message().find("rank 0 called shutdown() while its allreduce"),
                    std::string::npos)
              << shutdown.message();
          EXPECT_FALSE(outcome.get_future().get().ok());
        } else {
          over.get_future().wait();
          EXPECT_NE(Await(engine, AllreduceFloats(data, &data)).message().find("rank 0 called shutdown()"),
                    std::string::npos);
        }
      },
      {}, /*orderly=*/false);
}

TEST(Leaving, RanksMayLeaveOneAfterTheOther) {
  RunRanks(4, [](int rank, Engine& engine) {
    std::vector<float> data(100000, 1.0f);
    ASSERT_TRUE(Await(engine, AllreduceFloats(data, &data)).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
  });
}

TEST(BadRequest, IsRefusedHereAndTheJobGoesOn) {
  RunRanks(2, [](int, Engine& engine) {
    std::vector<float> data(10, 1.0f);
    Request request = AllreduceFloats(data, &data);
    request.operation.dtype = DType::kBool;
    EXPECT_NE(Await(engine, request).message().find("op sum is not defined for bool"), std::string::npos);
    request = AllreduceFloats(data, &data);
    request.operation.kind = CollectiveKind::kBroadcast;
    for (const int root : {-1, 2}) {
      request.operation.root = RankId(root);
      EXPECT_NE(Await(engine, request).message().find("root rank " + std::to_string(root)),
                std::string::npos);
    }
    const Status status = Await(engine, InGroup(AllreduceFloats(data, &data), 0, 3, 3));
    EXPECT_NE(status.message().find("param_index is 3, not below num_params, which is 3"), std::string::npos);
    EXPECT_TRUE(Await(engine, AllreduceFloats(data, &data)).ok());
  });
}

TEST(BadRequest, FactorsSplitsAndScalars) {
  RunRanks(2, [](int, Engine& engine) {
    std::vector<float> data(10, 1.0f);
    const auto refused = [&](Request request, const std::string& part) {
      const Status status = Await(engine, std::move(request));
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    };
    Request request = AllreduceFloats(data, &data);
    request.operation.postscale = 1.0 / 0.0;
    refused(request, "must be finite");
    request.operation.dtype = DType::kInt32;
    request.operation.postscale = 0.5;
    refused(request, "not defined for int32; cast to a floating type first");
    request = AllreduceFloats(data, &data);
    request.operation.kind = CollectiveKind::kAlltoall;
    refused(request, "alltoall with 0 splits for 2 ranks");
    request.splits = {11, -1};
    refused(request, "-1 rows");
    for (const std::vector<std::int64_t>& splits :
         {std::vector<std::int64_t>{5, 6}, {5, 4}, {std::int64_t{1} << 62, std::int64_t{1} << 62}}) {
      request.splits = splits;
      refused(request, "do not add up to its tensor's 10 rows");
    }
    request.operation.kind = CollectiveKind::kReducescatter;
    request.shape = {};
    refused(request, "of a scalar, which has no rows");
    request = AllreduceFloats(data, &data);
    request.operation.dtype = DType::kComplex64;
    request.operation.op = ReduceOp::kMax;
    refused(request, "which has no order");
    EXPECT_TRUE(Await(engine, AllreduceFloats(data, &data)).ok());
  });
}

TEST(BadRequest, OneIndexTwiceInAGroupFailsTheStep) {
  Meeting meeting(2);
  RunRanks(2, [&meeting](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0f), twin(10, 1.0f);
    const std::uint64_t ticket = DrawTicket(engine);
    meeting.Await();
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<Request> requests;
    requests.push_back(InGroup(AllreduceFloats(data, &data), ticket, 0, 1));
    if (rank == 0) requests.push_back(InGroup(AllreduceFloats(twin, &twin), ticket, 0, 1));
    for (const Status& status : AwaitAll(engine, std::move(requests))) {
      EXPECT_NE(status.message().find("submitted twice"), std::string::npos) << status.message();
    }
    EXPECT_TRUE(Await(engine, AllreduceFloats(data, &data)).ok());
  });
}

TEST(BadRequest, ATableThatIsFullIsAnErrorNotAWait) {
  RunRanks(
      2,
      [](int, Engine& engine) {
        std::vector<float> data(4, 1.0f);
        for (int i = 0; i < 20; ++i) {
          const Status status =
              Await(engine, Named(AllreduceFloats(data, &data), "name " + std::to_string(i)));
          ASSERT_EQ(status.ok(), i < 16) << i << ": " << status.message();
          if (status.ok()) continue;
          EXPECT_NE(status.message().find("SMDDP_TABLE_SLOTS"), std::string::npos) << status.message();
          EXPECT_NE(status.message().find("'name/name " + std::to_string(i) + "'"), std::string::npos);
        }
        // The names that it knows go on.
        const Status status = Await(engine, Named(AllreduceFloats(data, &data), "name 3"));
        EXPECT_TRUE(status.ok()) << status.message();
      },
      [](int, Config* config) { config->table_slots = 16; });
}

// A rank that has no memory for its output: the step fails on all.
TEST(BadRequest, NoRoomForAnOutput) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kReducescatter, CollectiveKind::kAlltoall}) {
    for (const std::int64_t count : {6, 60000}) {
      RunRanks(3, [&](int rank, Engine& engine) {
        std::vector<float> data(static_cast<std::size_t>(count), 1.0f), output(3 * data.size());
        for (const bool fails : {false, true, false}) {
          Request request = MakeRequest(kind, DType::kFloat32, ReduceOp::kSum, data.data(), nullptr, count);
          if (kind == CollectiveKind::kAlltoall) request.splits = {count / 3, count / 3, count / 3};
          request.allocate = [&](const std::vector<std::int64_t>&, void** to) {
            *to = output.data();
            return fails && rank == 1 ? Internal("out of memory on the device") : Status();
          };
          const Status status = Await(engine, std::move(request));
          ASSERT_EQ(status.ok(), !fails) << status.message();
          if (fails) {
            EXPECT_NE(status.message().find("out of memory on the device"), std::string::npos)
                << status.message();
          }
        }
      });
    }
  }
}

// A rank that has no memory for its output for a while: the others wait, and small requests go on.
TEST(BadRequest, NoRoomForAnOutputYet) {
  for (const int size : {1, 3}) {
    RunRanks(size, [&](int rank, Engine& engine) {
      const auto members = static_cast<std::size_t>(size);
      std::vector<float> data(60000, 1.0f), output(members * data.size()), small(4, 1.0f);
      Request request = MakeRequest(CollectiveKind::kAllgather, DType::kFloat32, ReduceOp::kSum, data.data(),
                                    nullptr, static_cast<std::int64_t>(data.size()));
      std::atomic<bool> there{size == 1 || rank != 1};
      std::atomic<int> calls{0};
      request.allocate = [&](const std::vector<std::int64_t>&, void** to) {
        *to = output.data();
        // A job of one rank has one thread.
        return ++calls > 2 && there ? Status() : Status(StatusCode::kNoMemoryNow, "no memory at the moment");
      };
      std::promise<Status> ended;
      request.done = [&ended](const Status& status) { ended.set_value(status); };
      engine.Submit(std::move(request));
      for (int step = 0; step < 3; ++step) {
        Request request = AllreduceFloats(small, &small);
        request.pairing.kind = Pairing::kOutOfBand;
        const Status status = Await(engine, std::move(request));
        EXPECT_TRUE(status.ok()) << status.message();
      }
      there = true;
      const Status status = ended.get_future().get();
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(output, std::vector<float>(output.size(), 1.0f));
    });
  }
}

TEST(AfterShutdown, EverythingIsRefused) {
  for (const int size : {1, 2}) {
    RunRanks(size, [](int, Engine& engine) {
      std::vector<float> data(4, 1.0f);
      ASSERT_TRUE(Await(engine, AllreduceFloats(data, &data)).ok());
      EXPECT_TRUE(engine.Shutdown().ok());
      EXPECT_TRUE(engine.Shutdown().ok());
      const Status status = Await(engine, AllreduceFloats(data, &data));
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(status.message().find("shut down"), std::string::npos);
    });
  }
}

TEST(ForkedChild, LeavesItsParentAlone) {
  RunRanks(2, [](int rank, Engine& engine) {
    if (rank == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        const bool quiet = engine.Shutdown().ok();
        engine.~Engine();
        ::_exit(quiet ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    std::vector<float> data(100000, 1.0f);
    ASSERT_TRUE(Await(engine, AllreduceFloats(data, &data)).ok());
    ASSERT_EQ(data[0], 2.0f);
  });
}

TEST(ForkedChild, IsRefused) {
  Config config;
  std::unique_ptr<Engine> engine;
  ASSERT_TRUE(Engine::Start(config, std::make_shared<MappingCache>(), Backends(), &engine).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<float> data(4, 1.0f);
    const Status status = Await(*engine, AllreduceFloats(data, &data));
    ::_exit(status.message().find("forked child of rank 0") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tf_smddp::testing
