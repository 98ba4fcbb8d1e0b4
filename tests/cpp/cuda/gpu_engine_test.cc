// Tensors of GPUs: ranks as threads, on the pretend GPU. Each has a device, and the engine gives their
// tensors to the pretend NCCL; or they share a device, and their tensors go through the host. The ranks that
// have a device each may be on several hosts (RanksOnHosts).
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_packing.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/cuda/nccl_trial.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kFloats = 5000;

bool HasHosts() { return RanksOnHosts(2).size() > 1; }

CollectiveStats StatsOf(Engine& engine, CollectiveKind kind) {
  EngineStats stats;
  ExpectOk(engine.Stats(/*reset=*/false, &stats));
  return stats.collectives[static_cast<std::size_t>(kind)];
}

// Sets all to the rank's number plus `step`, and adds that up over the ranks.
void ExpectSum(Engine& engine, Compute* compute, const Floats& data, int step) {
  const Config& config = engine.config();
  const_cast<Floats&>(data).Set(static_cast<float>(config.rank + step));
  compute->Mark();
  const Status status = Await(engine, Allreduce(data, data));
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectOk(compute->AwaitWritten());
  const int sum = config.size * step + config.size * (config.size - 1) / 2;
  EXPECT_EQ(data.Read(), std::vector<float>(data.count(), static_cast<float>(sum)));
}

// This rank's part in a trial, with tensors on its device.
class DeviceAttempt {
 public:
  DeviceAttempt(Engine& engine, Compute* compute, const Trial& trial)
      : compute_(compute),
        trial_(trial),
        rank_(engine.config().rank),
        size_(engine.config().size),
        content_(InputOf(trial, rank_)),
        in_place_(!trial.placements.empty() && trial.placements.front().in_place),
        input_(content_.size()) {
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    expected_ = ExpectedOf(trial, ranks, rank_);
    output_ = std::make_unique<DeviceMemory>(expected_.output.size());
    input_.Write(content_, compute_->stream());
    compute_->Mark(&order_);
  }

  Request MakeRequest() {
    Request request;
    request.operation = CallOf(trial_, size_).operation;
    request.shape = {trial_.RowsOf(rank_), trial_.row_count};
    if (trial_.kind == CollectiveKind::kAlltoall) {
      request.splits = trial_.splits[static_cast<std::size_t>(rank_)];
    }
    request.label = "trial";
    request.input = InputBuffer(input_.address(), compute_->device, &order_);
    request.output = Buffer(OutputMemory().address(), compute_->device, &order_);
    if (FindCollective(trial_.kind).reach() == Collective::Reach::kOwnOutput) {
      request.output.data = nullptr;
      request.allocate = [this](const std::vector<std::int64_t>& rows, void** output) {
        EXPECT_EQ(rows, expected_.rows);
        *output = output_->address();
        return Status();
      };
    }
    return request;
  }

  bool Check(const Status& status) const {
    EXPECT_TRUE(status.ok()) << DescribeTrial(trial_) << ": " << status.message();
    ExpectOk(Compute::AwaitWritten(order_));
    if (!status.ok()) return false;
    const bool intact = in_place_ || input_.Read(compute_->stream()) == content_;
    EXPECT_TRUE(intact) << DescribeTrial(trial_) << ": the input was changed";
    return ExpectOutput(trial_, size_, rank_, OutputMemory().Read(compute_->stream())) && intact;
  }

 private:
  const DeviceMemory& OutputMemory() const { return in_place_ ? input_ : *output_; }

  Compute* const compute_;
  const Trial& trial_;
  const int rank_, size_;
  const std::vector<std::byte> content_;
  const bool in_place_;
  const DeviceMemory input_;
  std::unique_ptr<DeviceMemory> output_;
  Outcome expected_;
  cuda::Order order_;
};

std::vector<Trial> TrialsOf(int size) {
  std::vector<Trial> trials;
  const auto members = static_cast<std::size_t>(size);
  unsigned salt = 0;
  for (const Arithmetic& arithmetic : AllArithmetic()) {
    for (const CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kReducescatter}) {
      Trial trial;
      trial.kind = kind;
      trial.dtype = arithmetic.dtype;
      trial.op = arithmetic.op;
      trial.prescale = arithmetic.prescale;
      trial.postscale = arithmetic.postscale;
      trial.rows = std::vector<std::int64_t>{1, 7, 0, 300}[salt % 4] + (salt % 3 == 0 ? size : 0);
      trial.row_count = 3;
      trial.salt = ++salt;
      trial.to_root = salt % 3 == 0;
      trial.root = static_cast<int>(salt) % size;
      Placement placement;
      placement.in_place = kind == CollectiveKind::kAllreduce && salt % 4 > 1;
      trial.placements.assign(members, placement);
      trials.push_back(trial);
    }
  }
  for (const DType dtype : AllDTypes()) {
    Trial trial;
    trial.dtype = dtype;
    trial.row_count = 2;
    trial.salt = ++salt;
    trial.kind = CollectiveKind::kBroadcast;
    trial.root = static_cast<int>(salt) % size;
    trial.rows = 50;
    trials.push_back(trial);
    for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
      trial.kind = CollectiveKind::kAllgather;
      trial.rows_of = Deal(40, size, pattern, salt);
      trials.push_back(trial);
      trial.kind = CollectiveKind::kAlltoall;
      trial.rows_of.clear();
      for (int member = 0; member < size; ++member) {
        trial.splits.push_back(Deal(9 * member, size, pattern, salt + static_cast<unsigned>(member)));
      }
      trials.push_back(trial);
      trial.splits.clear();
    }
  }
  return trials;
}

constexpr const char* kPolicies[] = {"prompt", "random", "compute=lazy,*=prompt", "compute=prompt,*=lazy",
                                     "lazy"};

// Tests for tensors that NCCL reduces.
class NcclEngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  NcclEngineTest() { pretend_gpu_set_policy(GetParam()); }
  ~NcclEngineTest() override { pretend_gpu_set_policy("random"); }
};

INSTANTIATE_TEST_SUITE_P(Policies, NcclEngineTest, ::testing::ValuesIn(kPolicies));

// A policy, and whether the ranks share a device.
class GpuEngineTest : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  GpuEngineTest() { pretend_gpu_set_policy(std::get<0>(GetParam())); }
  ~GpuEngineTest() override { pretend_gpu_set_policy("random"); }

  static bool Share() { return std::get<1>(GetParam()); }
  static int DeviceOf(int rank) { return Share() ? 0 : rank; }

  // NCCL has moved so many bytes of allreduces, and none where the ranks share a device.
  static void ExpectKept(Engine& engine, std::uint64_t bytes) {
    EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).nccl_bytes, Share() ? 0 : bytes);
  }

  // Sums until tensors go the way that they will keep to; then the statistics begin anew.
  static void BeginOnGpus(Engine& engine, Compute* compute) {
    const Floats data(compute, 10);
    if (Share()) {
      ExpectSum(engine, compute, data, 1);
    } else {
      ExpectOk(UseGpus(engine, compute, data));
    }
    EngineStats before;
    ExpectOk(engine.Stats(/*reset=*/true, &before));
  }
};

INSTANTIATE_TEST_SUITE_P(OwnDevices, GpuEngineTest,
                         ::testing::Combine(::testing::ValuesIn(kPolicies), ::testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(OneDevice, GpuEngineTest,
                         ::testing::Combine(::testing::ValuesIn(kPolicies), ::testing::Values(true)));

TEST_P(GpuEngineTest, SumsOneStepAfterTheOther) {
  for (const int size : {2, 4}) {
    RunRanks(size, [](int rank, Engine& engine) {
      Compute compute(DeviceOf(rank));
      BeginOnGpus(engine, &compute);
      const Floats data(&compute, kFloats);
      const std::uint64_t before = engine.arena()->used_bytes();
      for (int step = 0; step < 5; ++step) ExpectSum(engine, &compute, data, step);
      const CollectiveStats stats = StatsOf(engine, CollectiveKind::kAllreduce);
      ExpectKept(engine, 5 * kFloats * sizeof(float));
      EXPECT_EQ(stats.staged_bytes, 0u);
      // Between hosts, the relay keeps there what the other hosts bring, which is no tensor.
      const std::uint64_t used = engine.arena()->used_bytes();
      EXPECT_TRUE(used <= before + (HasHosts() ? kFloats : 0) || Share()) << before << ", then " << used;
    });
  }
}

// Small tensors of a group go out as one, beside large ones and those of another kind.
TEST_P(NcclEngineTest, PacksSmallTensors) {
  const std::uint64_t launches = pretend_gpu_launches("smddp_copy");
  RunRanks(3, [](int rank, Engine& engine) {
    Compute compute(rank);
    constexpr std::size_t kCounts[] = {1, 3, 1000, 4, 100000, 70000, 2};  // the fifth is too large
    std::vector<std::unique_ptr<Floats>> inputs, outputs;
    for (const std::size_t count : kCounts) {
      inputs.push_back(std::make_unique<Floats>(&compute, count));
      outputs.push_back(std::make_unique<Floats>(&compute, count));
    }
    constexpr auto kTensors = static_cast<std::uint32_t>(std::size(kCounts));
    for (int step = 0; step < 4; ++step) {
      std::vector<cuda::Order> orders(kTensors);
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<Request> requests;
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        const Floats& to = step % 2 == 0 ? *outputs[i] : *inputs[i];
        inputs[i]->Set(static_cast<float>(rank + step) + static_cast<float>(i));
        compute.Mark(&orders[i]);
        requests.push_back(InGroup(Allreduce(*inputs[i], to), ticket, i, kTensors));
        requests.back().input.stream = requests.back().output.stream = &orders[i];
        if (i == 3) requests.back().operation.postscale = 2.0;
      }
      for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        ExpectOk(Compute::AwaitWritten(orders[i]));
        const auto sum = static_cast<float>(3 + 3 * step) + 3.0f * static_cast<float>(i);
        const Floats& to = step % 2 == 0 ? *outputs[i] : *inputs[i];
        EXPECT_EQ(to.Read(), std::vector<float>(kCounts[i], i == 3 ? 2 * sum : sum)) << i;
      }
    }
    EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).staged_bytes, 0u);
  });
  // On three ranks in and out, for each batch that had several of them.
  const std::uint64_t launched = pretend_gpu_launches("smddp_copy") - launches;
  EXPECT_GE(launched, 6u);
  EXPECT_EQ(launched % 6, 0u);
}

// A program's host is ahead of its GPU, as TensorFlow's is in a backward pass. The batches fill meanwhile:
// the first two have a tensor each, so that the GPU has something to do, and the others are limited by the
// cap.
TEST(NcclEngine, FillsBatchesWhileTheGpuComputes) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute(rank);
    constexpr std::uint32_t kTensors = 100;
    std::vector<std::unique_ptr<Floats>> tensors;
    for (std::uint32_t i = 0; i < kTensors; ++i) {
      tensors.push_back(std::make_unique<Floats>(&compute, (1 << 20) / sizeof(float)));
    }
    ExpectOk(UseGpus(engine, &compute, *tensors.front()));
    pretend_gpu_set_policy("compute=paced");
    for (int step = 0; step < 3; ++step) {
      EngineStats before, stats;
      ExpectOk(engine.Stats(/*reset=*/true, &before));
      std::vector<cuda::Order> orders(kTensors);
      std::vector<std::promise<Status>> ended(kTensors);
      const std::uint64_t ticket = DrawTicket(engine);
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        tensors[i]->Set(static_cast<float>(rank + step));  // takes 10 ms
        compute.Mark(&orders[i]);
        Request request =
            InGroup(Allreduce(*tensors[i], "gradient", &orders[i], &orders[i]), ticket, i, kTensors);
        request.done = [&ended, i](const Status& status) { ended[i].set_value(status); };
        engine.Submit(std::move(request));
        std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 1 : 2));
      }
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        ExpectOk(ended[i].get_future().get());
        ExpectOk(Compute::AwaitWritten(orders[i]));
        EXPECT_EQ(tensors[i]->Read().front(), static_cast<float>(2 * step + 1));
      }
      ExpectOk(engine.Stats(/*reset=*/false, &stats));
      EXPECT_LE(stats.communicators.front().batches, 12u);
      EXPECT_EQ(stats.communicators.front().batch_bytes, std::uint64_t{kTensors} << 20);
    }
    pretend_gpu_set_policy("random");
  });
}

// Compressed tensors beside others. Each value is rounded to the format: 1 + 2^-12 is 1 in both.
TEST_P(NcclEngineTest, CompressesFloats) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute(rank);
    constexpr std::size_t kCounts[] = {1, 5, 30000, 7, 100};
    constexpr auto kTensors = static_cast<std::uint32_t>(std::size(kCounts));
    for (const Compression compression : {Compression::kFloat16, Compression::kBFloat16}) {
      std::vector<std::unique_ptr<Floats>> tensors;
      std::vector<cuda::Order> orders(kTensors);
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<Request> requests;
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        tensors.push_back(std::make_unique<Floats>(&compute, kCounts[i]));
        tensors[i]->Set(1.0f + 0x1p-12f);
        compute.Mark(&orders[i]);
        requests.push_back(InGroup(Allreduce(*tensors[i], *tensors[i]), ticket, i, kTensors));
        requests.back().input.stream = requests.back().output.stream = &orders[i];
        if (i != 3) requests.back().operation.compression = compression;
        if (i == 4) requests.back().operation.prescale = 0.5;
        if (i == 1) requests.back().operation.postscale = 1e-30;  // no normal number of float16
      }
      for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
      for (std::uint32_t i = 0; i < kTensors; ++i) {
        ExpectOk(Compute::AwaitWritten(orders[i]));
        float expected = i == 3 ? 2.0f + 0x1p-11f : 2.0f;
        if (i == 4) expected = 1.0f;
        if (i == 1 && compression == Compression::kFloat16) expected = (2.0f + 0x1p-11f) * 1e-30f;
        const std::vector<float> found = tensors[i]->Read();
        if (i == 1) {
          EXPECT_NEAR(found[0], compression == Compression::kFloat16 ? expected : 2e-30f, 1e-32f);
          continue;
        }
        EXPECT_EQ(found, std::vector<float>(kCounts[i], expected)) << i;
      }
    }
  });
}

// It goes through the buffer in two rounds.
TEST(NcclEngine, CompressesMoreThanTheBufferHolds) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute(rank);
    const std::size_t kCount = nccl::PackingBufferBytes(25 << 20) / 2 + 1001;
    Floats data(&compute, kCount);
    data.Set(static_cast<float>(rank) + 0x1p-12f);
    compute.Mark();
    Request request = Allreduce(data, data);
    request.operation.compression = Compression::kFloat16;
    ExpectOk(Await(engine, std::move(request)));
    ExpectOk(compute.AwaitWritten());
    // Rank 0 brings 2^-12, which float16 has; rank 1 brings 1, and so is the sum.
    EXPECT_EQ(data.Read(), std::vector<float>(kCount, 1.0f));
  });
}

// Sums the tensors of a group, one after the other or all at once, and returns the results. The last one is
// compressed. The ranks bring 1, b and -b: the sum is 1 or 0, as their order is.
std::vector<std::vector<float>> SumsOf(Engine& engine, Compute* compute, bool at_once) {
  constexpr std::size_t kCounts[] = {100, 300, 5, 7000, 1000, 100'000, 300};
  constexpr auto kTensors = static_cast<std::uint32_t>(std::size(kCounts));
  std::vector<std::unique_ptr<Floats>> tensors;
  std::vector<cuda::Order> orders(kTensors);
  std::vector<Request> requests;
  const std::uint64_t ticket = DrawTicket(engine);
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    const bool compressed = i + 1 == kTensors;
    const float large = compressed ? 0x1p13f : 0x1p30f;
    tensors.push_back(std::make_unique<Floats>(compute, kCounts[i]));
    tensors[i]->Set(std::vector<float>{1, large, -large}[static_cast<std::size_t>(engine.config().rank)]);
    compute->Mark(&orders[i]);
    Request request = InGroup(Allreduce(*tensors[i], *tensors[i]), ticket, i, kTensors);
    request.input.stream = request.output.stream = &orders[i];
    if (compressed) request.operation.compression = Compression::kFloat16;
    if (at_once) {
      requests.push_back(std::move(request));
    } else {
      ExpectOk(Await(engine, std::move(request)));
    }
  }
  for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
  std::vector<std::vector<float>> sums;
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    ExpectOk(Compute::AwaitWritten(orders[i]));
    sums.push_back(tensors[i]->Read());
  }
  return sums;
}

// Note [One request a group] in nccl_transfer.cc. Without it they differ where the pretend NCCL has rings.
TEST(NcclEngine, IsDeterministicWhereThatIsAskedFor) {
  for (const bool deterministic : {false, true}) {
    RunRanks(
        3,
        [&](int rank, Engine& engine) {
          Compute compute(rank);
          const auto sums = SumsOf(engine, &compute, /*at_once=*/false);
          int unlike = 0;
          for (int step = 0; step < 20; ++step) {
            unlike += SumsOf(engine, &compute, /*at_once=*/true) == sums ? 0 : 1;
          }
          if (deterministic) {
            EXPECT_EQ(unlike, 0);
          } else if (std::getenv("PRETEND_GPU_NCCL_RING") != nullptr) {
            EXPECT_GT(unlike, 0);
          }
          EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).staged_bytes, 0u);
        },
        [&](int, Config* config) { config->deterministic = deterministic; });
  }
}

// Requests that are not supported on GPUs go through the host, in the same groups.
TEST_P(GpuEngineTest, RunsEachCollectiveWithEachTypeAndOp) {
  RunRanks(3, [](int rank, Engine& engine) {
    Compute compute(DeviceOf(rank));
    BeginOnGpus(engine, &compute);
    constexpr std::size_t kGroup = 40;
    const std::vector<Trial> trials = TrialsOf(3);
    for (std::size_t begin = 0; begin < trials.size(); begin += kGroup) {
      const std::size_t count = std::min(kGroup, trials.size() - begin);
      std::vector<std::size_t> order(count);
      std::iota(order.begin(), order.end(), begin);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank)));
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<std::unique_ptr<DeviceAttempt>> attempts;
      std::vector<Request> requests;
      for (const std::size_t index : order) {
        attempts.push_back(std::make_unique<DeviceAttempt>(engine, &compute, trials[index]));
        requests.push_back(InGroup(attempts.back()->MakeRequest(), ticket,
                                   static_cast<std::uint32_t>(index - begin),
                                   static_cast<std::uint32_t>(count)));
      }
      const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
      for (std::size_t i = 0; i < attempts.size(); ++i) ASSERT_TRUE(attempts[i]->Check(statuses[i]));
    }
    const CollectiveStats stats = StatsOf(engine, CollectiveKind::kAllreduce);
    EXPECT_EQ(stats.nccl_bytes == 0, Share());
    EXPECT_LT(stats.nccl_bytes, stats.bytes);
    EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllgather).staged_bytes, 0u);
  });
}

// A step that fails may end NCCL's communicator; the next one makes another.
TEST_P(GpuEngineTest, GoesOnAfterFailedSteps) {
  RunRanks(3, [](int rank, Engine& engine) {
    Compute compute(DeviceOf(rank));
    BeginOnGpus(engine, &compute);
    const Floats data(&compute, kFloats), shorter(&compute, kFloats - 1);
    for (int step = 0; step < 4; ++step) {
      ExpectSum(engine, &compute, data, step);
      const Floats& wrong = rank == step % 3 ? shorter : data;
      ExpectError(Await(engine, Allreduce(wrong, wrong)), "the ranks run different collectives");
      static_cast<void>(compute.AwaitWritten());
    }
    ExpectSum(engine, &compute, data, 9);
    ExpectKept(engine, 5 * kFloats * sizeof(float));
  });
}

// A collective that has completed, and that the device has not come to, is not lost with the next step.
TEST_P(GpuEngineTest, KeepsTheResultsOfBatchesThatWereCompleteWhenAStepFails) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute(DeviceOf(rank));
    BeginOnGpus(engine, &compute);
    Floats data(&compute, kFloats);
    const Floats other(&compute, kFloats), shorter(&compute, kFloats - 1);
    cuda::Order first;
    for (int step = 0; step < 3; ++step) {
      data.Set(static_cast<float>(rank + 1));
      compute.Mark(&first);
      Request request = Allreduce(data, data);
      request.input.stream = request.output.stream = &first;
      ExpectOk(Await(engine, std::move(request)));
      const Floats& wrong = rank == 0 ? shorter : other;
      compute.Mark();
      ExpectError(Await(engine, Allreduce(wrong, wrong)), "the ranks run different collectives");
      ExpectOk(Compute::AwaitWritten(first));
      EXPECT_EQ(data.Read(), std::vector<float>(kFloats, 3.0f));
    }
  });
}

// Groups of several batches, in which the ranks differ in the last tensor: when they find that, some ranks
// have calls on their streams that others will never make.
TEST_P(GpuEngineTest, LetsGoOfCallsThatOthersNeverMake) {
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        Compute compute(DeviceOf(rank));
        BeginOnGpus(engine, &compute);
        constexpr std::uint32_t kTensors = 8;
        std::vector<std::unique_ptr<Floats>> tensors;
        for (std::uint32_t i = 0; i < kTensors; ++i) {
          tensors.push_back(std::make_unique<Floats>(&compute, kFloats));
        }
        const Floats shorter(&compute, kFloats - 1), data(&compute, kFloats);
        for (int step = 0; step < 12; ++step) {
          std::vector<cuda::Order> orders(kTensors);
          std::uint64_t ticket = 0;
          // Another rank may have found it before this one has begun.
          if (!engine.DrawTicket(kWorld, kNoStep, &ticket).ok()) continue;
          std::vector<Request> requests;
          for (std::uint32_t i = 0; i < kTensors; ++i) {
            const Floats& tensor = rank == step % 3 && i + 1 == kTensors ? shorter : *tensors[i];
            compute.Mark(&orders[i]);
            requests.push_back(InGroup(Allreduce(tensor, tensor), ticket, i, kTensors));
            requests.back().input.stream = requests.back().output.stream = &orders[i];
          }
          const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
          for (std::uint32_t i = 0; i < kTensors; ++i) {
            const Status written = Compute::AwaitWritten(orders[i]);
            if (statuses[i].ok()) ExpectOk(written);
          }
          ExpectError(statuses.back(), "the ranks run different collectives");
        }
        ExpectSum(engine, &compute, data, 1);
      },
      [](int, Config* config) { config->bucket_cap_bytes = 32768; });
}

// An abort, such as a death, ends what is on the streams.
TEST_P(GpuEngineTest, AnAbortEndsWhatIsOnTheStreams) {
  Meeting meeting(2);
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        Compute compute(DeviceOf(rank));
        BeginOnGpus(engine, &compute);
        const Floats data(&compute, kFloats);
        ExpectSum(engine, &compute, data, 1);
        meeting.Await();
        cuda::Order order;
        compute.Mark(&order);
        Request request = Allreduce(data, data);
        request.input.stream = request.output.stream = &order;
        if (rank == 1) {
          engine.Abort("the test ends the job");
        } else {
          static_cast<void>(Await(engine, std::move(request)));
        }
        static_cast<void>(Compute::AwaitWritten(order));
        ExpectError(Await(engine, Allreduce(data, data)), "the test ends the job");
        static_cast<void>(compute.AwaitWritten());
      },
      {}, /*orderly=*/false);
}

// Some ranks' tensors are on the host, now and then: all are staged then.
TEST_P(GpuEngineTest, MeetsTensorsOfTheHost) {
  RunRanks(3, [](int rank, Engine& engine) {
    Compute compute(DeviceOf(rank));
    BeginOnGpus(engine, &compute);
    Floats data(&compute, kFloats);
    for (int step = 0; step < 6; ++step) {
      data.Set(1.0f);
      compute.Mark();
      std::vector<float> host(kFloats, 1.0f);
      const bool on_host = step % 2 == 1 && rank == step / 2;
      ExpectOk(Await(engine, on_host ? AllreduceFloats(host, &host) : Allreduce(data, data)));
      ExpectOk(compute.AwaitWritten());
      EXPECT_EQ(on_host ? host : data.Read(), std::vector<float>(kFloats, 3.0f));
    }
    const CollectiveStats stats = StatsOf(engine, CollectiveKind::kAllreduce);
    ExpectKept(engine, 3 * kFloats * sizeof(float));
    EXPECT_EQ(stats.staged_bytes, HasHosts() ? 0 : 3 * kFloats * sizeof(float));
  });
}

// An allgather whose output is allocated when the ranks have arrived, and with a rank on the host.
TEST_P(GpuEngineTest, GathersWhereOneRankIsOnTheHost) {
  RunRanks(3, [](int rank, Engine& engine) {
    Trial trial;
    trial.kind = CollectiveKind::kAllgather;
    trial.rows_of = {3, 0, 5};
    for (int step = 0; step < 4; ++step) {
      Compute compute(DeviceOf(rank));
      if (rank == step) {
        Attempt attempt(engine, kWorld, trial);
        Request request = attempt.MakeRequest();
        request.shape.push_back(1);
        EXPECT_TRUE(attempt.Check(Await(engine, std::move(request))));
      } else {
        DeviceAttempt attempt(engine, &compute, trial);
        EXPECT_TRUE(attempt.Check(Await(engine, attempt.MakeRequest())));
      }
    }
  });
}

// NCCL refuses it.
TEST(NcclEngine, HasNoTwoRanksOnEachOfTwoGpus) {
  RunRanks(4, [](int rank, Engine& engine) {
    Compute compute(HasHosts() ? rank % 2 : rank / 2);  // those of one host share a GPU
    const Floats data(&compute, kFloats);
    for (int step = 0; step < 4; ++step) ExpectSum(engine, &compute, data, step);
    EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).nccl_bytes, 0u);
  });
}

TEST_P(NcclEngineTest, IsTurnedOffByASettingOfAnyRank) {
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        const Floats data(&compute, kFloats);
        for (int step = 0; step < 4; ++step) ExpectSum(engine, &compute, data, step);
        EXPECT_EQ(StatsOf(engine, CollectiveKind::kAllreduce).nccl_bytes, 0u);
      },
      [](int rank, Config* config) { config->nccl = rank != 1; });
}

// When a rank has left, NCCL's communicator has one rank too many.
TEST_P(GpuEngineTest, GoesThroughTheHostWhenARankHasLeft) {
  RunRanks(3, [](int rank, Engine& engine) {
    Compute compute(DeviceOf(rank));
    Floats data(&compute, kFloats);
    CommunicatorId all = 0;
    ExpectOk(engine.CreateCommunicator({0, 1, 2}, &all));
    for (const bool after : {false, true}) {
      if (after && rank == 2) ExpectOk(engine.Leave(all));
      if (after) ExpectSum(engine, &compute, data, 1);  // by then, it has left
      if (after && rank == 2) continue;
      data.Set(1.0f);
      compute.Mark();
      Request request = Allreduce(data, data);
      request.communicator = all;
      ExpectOk(Await(engine, std::move(request)));
      ExpectOk(compute.AwaitWritten());
      EXPECT_EQ(data.Read(), std::vector<float>(kFloats, after ? 2.0f : 3.0f));
    }
  });
}

}  // namespace
}  // namespace tf_smddp::testing
