// Which request meets which: groups, the sequence, names; broadcast and barrier among them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/socket_wire.h"

namespace tf_smddp::testing {
namespace {

// Tensors of `tickets` groups with `params` tensors each, all of one shape, all outstanding at once,
// submitted in an order of each rank's own.
void RunGroupsAtOnce(Engine& engine, int rank, int size, int tickets, std::uint32_t params, std::size_t count,
                     unsigned seed) {
  struct Tensor {
    std::uint64_t ticket;
    std::uint32_t index;
    std::vector<float> data;
    float expected;
  };
  std::vector<Tensor> tensors;
  for (int t = 0; t < tickets; ++t) {
    const std::uint64_t ticket = DrawTicket(engine);
    for (std::uint32_t index = 0; index < params; ++index) {
      const auto salt = static_cast<float>(ticket % 50 * 10 + index);
      const auto ranks = static_cast<float>(size);
      tensors.push_back({ticket, index, std::vector<float>(count, salt + static_cast<float>(rank)),
                         ranks * salt + ranks * (ranks - 1) / 2});
    }
  }
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(seed * 31 + static_cast<unsigned>(rank)));
  std::vector<Request> requests;
  for (Tensor& tensor : tensors) {
    requests.push_back(
        InGroup(AllreduceFloats(tensor.data, &tensor.data), tensor.ticket, tensor.index, params));
  }
  const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_TRUE(statuses[i].ok()) << statuses[i].message();
    for (const float value : tensors[i].data) ASSERT_EQ(value, tensors[i].expected);
  }
}

// TensorFlow's executor may run the next op in the thread that has ended the one before. If each callback ran
// inside the one before, the stack would overflow.
TEST(Order, CallbacksThatSubmitTheNextRequest) {
  static thread_local int depth = 0;
  std::atomic<int> deepest{0};
  for (const std::int64_t count : {1, 5000}) {  // small, and by way of the launch log
    RunRanks(2, [&, count](int, Engine& engine) {
      int left = kSanitized ? 2'000 : 20'000;
      std::vector<float> data(static_cast<std::size_t>(count));
      std::promise<void> finished;
      std::function<void()> next = [&] {
        const auto ended = std::make_shared<std::atomic<bool>>(false);
        Request request = AllreduceFloats(data, &data);
        request.caller_progresses = true;
        request.done = [&, ended](const Status& status) {
          EXPECT_TRUE(status.ok()) << status.message();
          ended->store(true);
          if (++depth > deepest.load()) deepest.store(depth);
          --left > 0 ? next() : finished.set_value();
          --depth;
        };
        engine.SubmitAndProgress(
            kWorld, Caller::kNonBlocking, [&] { engine.Submit(std::move(request)); }, *ended);
      };
      next();
      finished.get_future().get();
    });
  }
  EXPECT_LT(deepest.load(), 20);
}

TEST(Order, ManyGroupsOfTheSameShapesAtOnce) {
  for (const int size : {2, 3, 5}) {
    for (const std::size_t count : {3, 3000}) {  // small, and by way of the launch log
      RunRanks(size, [&](int rank, Engine& engine) {
        for (unsigned round = 0; round < (kSanitized ? 3 : 20); ++round) {
          RunGroupsAtOnce(engine, rank, size, 7, 5, count, round);
        }
      });
    }
  }
}

TEST(Order, HundredsOfGroupsOfOneTensorAtOnce) {
  for (const int size : {2, 3}) {
    RunRanks(size, [&](int rank, Engine& engine) {
      for (unsigned round = 0; round < 3; ++round) {
        RunGroupsAtOnce(engine, rank, size, kSanitized ? 100 : 500, 1, 3, round);
      }
    });
  }
}

// A tensor that the head knows takes 16 bytes of a report at most, and 16 of a launch; also when a group's
// ticket uses another key, every 16 steps, and after a step that has failed.
TEST(Order, BetweenHostsItIsSmallFromTheSecondStepOn) {
  const bool has_hosts = RanksOnHosts(3).size() > 1;
  constexpr int kTensors = 10, kLaterSteps = 40;
  const auto bytes_of = [](int steps, bool fails) {
    const std::uint64_t before = SocketWire::OrderBytes();
    RunRanks(3, [&](int rank, Engine& engine) {
      if (fails) {
        std::vector<float> unequal(rank == 0 ? 5 : 4);
        EXPECT_FALSE(Await(engine, AllreduceFloats(unequal, &unequal)).ok());
      }
      for (int step = 0; step < steps; ++step) {
        RunGroupsAtOnce(engine, rank, 3, /*tickets=*/1, kTensors, /*count=*/2000, /*seed=*/1);
      }
    });
    return SocketWire::OrderBytes() - before;
  };
  for (const bool fails : {false, true}) {
    const std::uint64_t first = bytes_of(1, fails), all = bytes_of(1 + kLaterSteps, fails);
    EXPECT_EQ(first > kTensors * sizeof(Manifest), has_hosts) << first;
    EXPECT_LE(all - first, kLaterSteps * kTensors * 2 * 16);
  }
}

TEST(Order, TheSequencePairsInOrderOfSubmission) {
  const int size = 3, rounds = 200;
  RunRanks(size, [&](int rank, Engine& engine) {
    std::vector<std::vector<float>> data;
    std::vector<Request> requests;
    for (int i = 0; i < rounds; ++i)
      data.emplace_back(i % 3 == 0 ? 2000 : 4, static_cast<float>(rank * 1000 + i));
    for (int i = 0; i < rounds; ++i) {
      Request request =
          AllreduceFloats(data[static_cast<std::size_t>(i)], &data[static_cast<std::size_t>(i)]);
      request.operation.kind = CollectiveKind::kBroadcast;
      request.operation.root = RankId(i % size);
      requests.push_back(std::move(request));
      requests.push_back(
          MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum, nullptr, nullptr, 0));
    }
    for (const Status& status : AwaitAll(engine, std::move(requests)))
      ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < rounds; ++i) {
      for (const float value : data[static_cast<std::size_t>(i)]) {
        ASSERT_EQ(value, static_cast<float>(i % size * 1000 + i));
      }
    }
  });
}

TEST(Order, NamesPairAcrossAnyOrderAndManyThreads) {
  const int size = 2, threads = 4, uses = 50;
  RunRanks(size, [&](int rank, Engine& engine) {
    std::vector<std::thread> workers;
    for (int worker = 0; worker < threads; ++worker) {
      workers.emplace_back([&, worker] {
        for (int use = 0; use < uses; ++use) {
          std::vector<float> data(worker % 2 == 0 ? 5 : 2000, static_cast<float>(worker * 100 + use + rank));
          const Status status =
              Await(engine, Named(AllreduceFloats(data, &data), "worker " + std::to_string(worker)));
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(data[0], static_cast<float>(2 * (worker * 100 + use) + 1));
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
  });
}

TEST(Order, BroadcastFromEveryRoot) {
  for (int size = 1; size <= 8; ++size) {
    RunRanks(size, [&](int rank, Engine& engine) {
      for (int root = 0; root < size; ++root) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{997}, std::size_t{300007}}) {
          std::vector<float> input(count, static_cast<float>(rank + 1)), output(count, -1);
          Request request = AllreduceFloats(input, &output);
          request.operation.kind = CollectiveKind::kBroadcast;
          request.operation.root = RankId(root);
          const Status status = Await(engine, std::move(request));
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(output, std::vector<float>(count, static_cast<float>(root + 1)));
        }
      }
    });
  }
}

TEST(Order, BroadcastInArenas) {
  const int size = 3;
  constexpr std::size_t kCount = 300007;
  RunRanks(size, [&](int rank, Engine& engine) {
    auto* data = static_cast<float*>(engine.arena()->Allocate(kCount * sizeof(float)));
    std::fill(data, data + kCount, static_cast<float>(rank));
    Request request =
        MakeRequest(CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, data, data, kCount);
    request.operation.root = RankId(1);
    ASSERT_TRUE(Await(engine, std::move(request)).ok());
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], 1.0f);
  });
}

TEST(Order, NobodyPassesABarrierEarly) {
  const int size = 4;
  std::atomic<int> arrived{0};
  RunRanks(size, [&](int rank, Engine& engine) {
    for (int round = 1; round <= 50; ++round) {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * ((rank * 7 + round) % 5)));
      arrived.fetch_add(1);
      ASSERT_TRUE(Await(engine, MakeRequest(CollectiveKind::kBarrier, DType::kUInt8, ReduceOp::kSum, nullptr,
                                            nullptr, 0))
                      .ok());
      ASSERT_GE(arrived.load(), size * round);
    }
  });
}

// Large and small, groups and sequence, from two threads of each rank, for a while.
TEST(Order, EverythingAtOnce) {
  for (const int size : {2, 3}) {
    RunRanks(
        size,
        [&](int rank, Engine& engine) {
          std::thread sequence([&] {
            for (int i = 0; i < (kSanitized ? 30 : 300); ++i) {
              std::vector<float> data(i % 7 == 0 ? 50000 : 3, static_cast<float>(rank));
              Request request = AllreduceFloats(data, &data, ReduceOp::kMax);
              ASSERT_TRUE(Await(engine, std::move(request)).ok());
              ASSERT_EQ(data[0], static_cast<float>(size - 1));
            }
          });
          for (unsigned round = 0; round < (kSanitized ? 3 : 15); ++round) {
            RunGroupsAtOnce(engine, rank, size, 3, 4, round % 2 == 0 ? 100 : 60000, round);
          }
          sequence.join();
        },
        [](int, Config* config) {
          config->table_slots = 32;
          config->bucket_cap_bytes = 512 << 10;
          config->chunk_bytes = 64 << 10;
        });
  }
}

}  // namespace
}  // namespace tf_smddp::testing
