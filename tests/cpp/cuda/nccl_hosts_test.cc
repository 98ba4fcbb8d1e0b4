// NCCL between hosts: ranks as threads on two hosts, which a wire with random delays joins, with a device of
// the pretend GPU each. Tests that are the same on one host are in gpu_engine_test.cc and
// nccl_sets_test.cc, which run on two hosts, too. Rank r is on host r modulo 2.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/turn_record.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// Small enough to go with the relays' messages, if the tensors are on the host; and too large for that.
constexpr std::size_t kHostsCounts[] = {1, 100, 5000};

constexpr std::size_t kFloatsOfBatch = 128;  // of a batch that has one tensor only

std::uint64_t NcclBytes(Engine& engine) {
  EngineStats stats;
  ExpectOk(engine.Stats(/*reset=*/false, &stats));
  std::uint64_t bytes = 0;
  for (const CollectiveStats& each : stats.collectives) bytes += each.nccl_bytes;
  return bytes;
}

// Sums this rank's number plus `step` over the ranks; on the host, if `on_host`.
void ExpectSum(Engine& engine, Compute* compute, std::size_t count, int step, bool on_host = false) {
  const Config& config = engine.config();
  const auto own = static_cast<float>(config.rank + step);
  Floats data(compute, count);
  std::vector<float> host(count, own);
  data.Set(own);
  compute->Mark();
  const Status status = Await(engine, on_host ? AllreduceFloats(host, &host) : Allreduce(data, data));
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectOk(compute->AwaitWritten());
  const int sum = config.size * step + config.size * (config.size - 1) / 2;
  EXPECT_EQ(on_host ? host : data.Read(), std::vector<float>(count, static_cast<float>(sum)));
}

class NcclHostsTest : public ::testing::TestWithParam<const char*> {
 protected:
  NcclHostsTest() {
    EXPECT_EQ(RanksOnHosts(4), (std::vector<int>{2, 2}));
    EXPECT_EQ(RanksOnHosts(3), (std::vector<int>{2, 1}));
    pretend_gpu_set_policy(GetParam());
  }
  ~NcclHostsTest() override { pretend_gpu_set_policy("random"); }
};

INSTANTIATE_TEST_SUITE_P(Policies, NcclHostsTest,
                         ::testing::Values("prompt", "random", "compute=lazy,*=prompt",
                                           "compute=prompt,*=lazy", "lazy"));

TEST_P(NcclHostsTest, MovesTensorsOfAnySize) {
  for (const int size : {2, 3, 4}) {
    RunRanks(size, [](int rank, Engine& engine) {
      Compute compute(rank);
      std::uint64_t bytes = 0;
      for (int step = 0; step < 3; ++step) {
        for (const std::size_t count : kHostsCounts) {
          ExpectSum(engine, &compute, count, step);
          bytes += count * sizeof(float);
        }
      }
      EXPECT_EQ(NcclBytes(engine), bytes);
    });
  }
}

// On whichever host it is, no rank uses NCCL then.
TEST_P(NcclHostsTest, GoesThroughTheHostsWhereOneRankHasNoNccl) {
  for (int without = 0; without < 3; ++without) {
    RunRanks(
        3,
        [](int rank, Engine& engine) {
          Compute compute(rank);
          for (int step = 0; step < 3; ++step) {
            for (const std::size_t count : kHostsCounts) ExpectSum(engine, &compute, count, step);
          }
          EXPECT_EQ(NcclBytes(engine), 0u);
        },
        [without](int rank, Config* config) { config->nccl = rank != without; });
  }
}

// The ranks of the other host have kept theirs on their GPUs, and so has another rank of this one.
TEST_P(NcclHostsTest, MeetsTensorsOfTheHost) {
  RunRanks(4, [](int rank, Engine& engine) {
    Compute compute(rank);
    std::uint64_t bytes = 0;
    for (int step = 0; step < 8; ++step) {
      for (const std::size_t count : kHostsCounts) {
        ExpectSum(engine, &compute, count, step, /*on_host=*/step % 2 == 1 && rank == step / 2);
        if (step % 2 == 0) bytes += count * sizeof(float);
      }
    }
    EXPECT_EQ(NcclBytes(engine), bytes);
  });
}

// The same in one group with others, whose outputs are allocated when the ranks have arrived.
TEST_P(NcclHostsTest, GathersWhereOneRankIsOnTheHost) {
  RunRanks(4, [](int rank, Engine& engine) {
    Compute compute(rank);
    constexpr std::uint32_t kTensors = 3;
    constexpr std::size_t kEach = 1000;
    for (int step = 0; step < 5; ++step) {
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<std::unique_ptr<Floats>> inputs, outputs;
      std::vector<std::vector<float>> host_inputs(kTensors), host_outputs(kTensors);
      std::vector<cuda::Order> orders(kTensors);
      std::vector<Request> requests;
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        inputs.push_back(std::make_unique<Floats>(&compute, kEach));
        outputs.push_back(std::make_unique<Floats>(&compute, 4 * kEach));
        inputs[i]->Set(static_cast<float>(rank));
        compute.Mark(&orders[i]);
        Request request = Allreduce(*inputs[i], *outputs[i]);
        request.operation.kind = CollectiveKind::kAllgather;
        request.input.stream = &orders[i];
        request.output = Buffer(nullptr, compute.device, &orders[i]);
        request.allocate = [data = outputs[i]->Address()](const std::vector<std::int64_t>&, void** output) {
          *output = data;
          return Status();
        };
        if (i == 1 && rank == step) {
          host_inputs[i].assign(kEach, static_cast<float>(rank));
          host_outputs[i].resize(4 * kEach);
          request.input = InputBuffer(host_inputs[i].data());
          request.output = Buffer();
          request.allocate = [&to = host_outputs[i]](const std::vector<std::int64_t>&, void** output) {
            *output = to.data();
            return Status();
          };
        }
        requests.push_back(InGroup(std::move(request), ticket, i, kTensors));
      }
      for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        ExpectOk(Compute::AwaitWritten(orders[i]));
        std::vector<float> expected;
        for (int from = 0; from < 4; ++from) expected.insert(expected.end(), kEach, static_cast<float>(from));
        EXPECT_EQ(host_outputs[i].empty() ? outputs[i]->Read() : host_outputs[i], expected);
      }
    }
  });
}

// Only that rank's request fails, and the others a step later.
TEST_P(NcclHostsTest, ARankThatCannotAllocateItsOutputFailsAlone) {
  Meeting meeting(3);
  RunRanks(3, [&](int rank, Engine& engine) {
    Compute compute(rank);
    ExpectSum(engine, &compute, 5000, 1);
    for (int failing = 0; failing < 3; ++failing) {
      const Floats input(&compute, 1000), output(&compute, 3000);
      const_cast<Floats&>(input).Set(1.0f);
      compute.Mark();
      Request request = Allreduce(input, output);
      request.operation.kind = CollectiveKind::kAllgather;
      request.output = Buffer(nullptr, compute.device, &compute.order);
      request.allocate = [&](const std::vector<std::int64_t>&, void** data) {
        if (rank == failing) return FailedPrecondition("no memory is left");
        *data = output.Address();
        return Status();
      };
      const Status status = Await(engine, std::move(request));
      const Status written = compute.AwaitWritten();
      if (rank == failing) {
        ExpectError(status, "no memory is left");
      } else {
        ExpectOk(status);
        ExpectOk(written);
        EXPECT_EQ(output.Read(), std::vector<float>(3000, 1.0f));
        Floats next(&compute, 5000);
        compute.Mark();
        ExpectError(Await(engine, Allreduce(next, next)), "no memory is left");
        static_cast<void>(compute.AwaitWritten());
      }
      meeting.Await();
      ExpectSum(engine, &compute, 5000, failing);
    }
  });
}

// Rank 0 makes its calls far ahead of rank 1, for more batches than have turns at a time.
TEST_P(NcclHostsTest, AHostMayBeFarAhead) {
  constexpr std::uint32_t kTensors = 3 * TurnRecord::kRoom;
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        ExpectSum(engine, &compute, 5000, 1);
        const std::uint64_t ticket = DrawTicket(engine);
        std::vector<std::unique_ptr<Floats>> tensors;
        std::vector<cuda::Order> orders(kTensors);
        std::vector<Request> requests;
        for (std::uint32_t i = 0; i < kTensors; ++i) {
          tensors.push_back(std::make_unique<Floats>(&compute, kFloatsOfBatch));
          tensors[i]->Set(static_cast<float>(i));
          compute.Mark(&orders[i]);
          requests.push_back(
              InGroup(Allreduce(*tensors[i], "ahead", &orders[i], &orders[i]), ticket, i, kTensors));
        }
        for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
        for (std::uint32_t i = 0; i < kTensors; ++i) {
          ExpectOk(Compute::AwaitWritten(orders[i]));
          EXPECT_EQ(tensors[i]->Read(), std::vector<float>(kFloatsOfBatch, 2.0f * static_cast<float>(i)));
        }
      },
      [](int rank, Config* config) {
        config->bucket_cap_bytes = kFloatsOfBatch * sizeof(float);  // a batch for each tensor
        if (rank == 1) config->test_transfer_delay_ms = 2;
      });
}

// The set is removed when the sum is complete on all ranks, and rank 1's stream has not come to it.
TEST_P(NcclHostsTest, ASetEndsWhenTheStreamsOfAllHostsHaveComePastItsCalls) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute(rank);
    ExpectSum(engine, &compute, 5000, 1);
    CommunicatorId set = kWorld;
    ExpectOk(engine.CreateCommunicator({0, 1}, &set));
    Floats data(&compute, 5000);
    data.Set(1.0f);
    Hold hold(compute.stream());
    compute.Mark();
    std::thread lets_go([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 100 : 0));
      hold.LetGo();
    });
    Request request = Allreduce(data, data);
    request.communicator = set;
    ExpectOk(Await(engine, std::move(request)));
    ExpectOk(engine.RemoveCommunicator(set));
    ExpectOk(compute.AwaitWritten());
    EXPECT_EQ(data.Read(), std::vector<float>(5000, 2.0f));
    lets_go.join();
  });
}

// A sum is complete on all hosts, and its calls wait on the streams, when a rank ends the job. The relay of
// the other host is busy, and hears of that late. A result that arrives in spite of that is right.
TEST_P(NcclHostsTest, AnAbortSpoilsNoResultOfAnotherHost) {
  for (const int aborting : {0, 1}) {
    Meeting meeting(3);
    RunRanks(
        3,
        [&](int rank, Engine& engine) {
          Compute compute(rank);
          ExpectSum(engine, &compute, 5000, 1);
          Floats data(&compute, 5000), busy(&compute, 5000);
          data.Set(1.0f);
          Hold hold(compute.stream());
          if (rank != aborting) hold.LetGo();
          cuda::Order orders[2];
          std::promise<Status> outcomes[2];
          compute.Mark(&orders[0]);
          Request request = Allreduce(data, "spoiled", &orders[0], &orders[0]);
          request.done = [&](const Status& status) { outcomes[0].set_value(status); };
          engine.Submit(std::move(request));
          ExpectOk(outcomes[0].get_future().get());
          meeting.Await();
          compute.Mark(&orders[1]);
          request = Allreduce(busy, "busy", &orders[1], &orders[1]);
          request.done = [&](const Status& status) { outcomes[1].set_value(status); };
          engine.Submit(std::move(request));
          if (rank == aborting) {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            engine.Abort("the test ends the job");
          } else {
            const auto begin = std::chrono::steady_clock::now();
            ExpectError(Compute::AwaitWritten(orders[0]), "the test ends the job");
            EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
          }
          ExpectError(Await(engine, Allreduce(data, data)), "the test ends the job");
          static_cast<void>(outcomes[1].get_future().get());  // on some hosts it may be complete
          meeting.Await();
          if (rank == aborting) {
            hold.LetGo();
            ExpectError(Compute::AwaitWritten(orders[0]), "the test ends the job");
          }
          static_cast<void>(Compute::AwaitWritten(orders[1]));
          static_cast<void>(compute.AwaitWritten());
        },
        [aborting](int rank, Config* config) {
          if (rank == 1 - aborting) config->test_transfer_delay_ms = 100;
        },
        /*orderly=*/false);
  }
}

}  // namespace
}  // namespace tf_smddp::testing
