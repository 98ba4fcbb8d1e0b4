// NCCL that fails when it starts: ranks as threads with a device of the pretend GPU each, and the pretend
// NCCL behind tests/faulty_nccl. All results are right, through the host, and one line says why.
#include "kernels/collectives/backends/nccl/nccl_start.h"

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kStartFloats = 5000;
constexpr std::size_t kRows = 300;  // that each rank brings to a gathering

// Holds for the communicators that are made while it lives.
class Fault {
 public:
  explicit Fault(const std::string& fault, const char* text = "") {
    ::setenv("FAULTY_NCCL", fault.c_str(), 1);
    ::setenv("FAULTY_NCCL_TEXT", text, 1);
  }
  ~Fault() { ::unsetenv("FAULTY_NCCL"); }
};

void UseFaulty(Config* config, std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  config->nccl_library = ::getenv("FAULTY_NCCL_PATH");
  config->nccl_timeout_ms = timeout.count();
  config->log_level = 2;
}

std::uint64_t NcclBytes(Engine& engine) {
  EngineStats stats;
  ExpectOk(engine.Stats(/*reset=*/false, &stats));
  std::uint64_t bytes = 0;
  for (const CollectiveStats& each : stats.collectives) bytes += each.nccl_bytes;
  return bytes;
}

void ExpectSum(Engine& engine, Compute* compute, int step, CommunicatorId set = kWorld) {
  const Config& config = engine.config();
  Floats data(compute, kStartFloats);
  data.Set(static_cast<float>(config.rank + step));
  compute->Mark();
  Request request = Allreduce(data, data);
  request.communicator = set;
  ExpectOk(Await(engine, std::move(request)));
  ExpectOk(compute->AwaitWritten());
  const int sum = config.size * step + config.size * (config.size - 1) / 2;
  EXPECT_EQ(data.Read(), std::vector<float>(kStartFloats, static_cast<float>(sum)));
}

// The output is allocated when the ranks have arrived; once.
void ExpectGather(Engine& engine, Compute* compute) {
  const Config& config = engine.config();
  const auto size = static_cast<std::size_t>(config.size);
  Floats input(compute, kRows), output(compute, size * kRows);
  input.Set(static_cast<float>(config.rank));
  compute->Mark();
  int allocated = 0;
  Request request = Allreduce(input, output);
  request.operation.kind = CollectiveKind::kAllgather;
  request.output.data = nullptr;
  request.allocate = [&](const std::vector<std::int64_t>&, void** data) {
    ++allocated;
    *data = output.Address();
    return Status();
  };
  ExpectOk(Await(engine, std::move(request)));
  ExpectOk(compute->AwaitWritten());
  EXPECT_EQ(allocated, 1);
  std::vector<float> expected;
  for (std::size_t from = 0; from < size; ++from) {
    expected.insert(expected.end(), kRows, static_cast<float>(from));
  }
  EXPECT_EQ(output.Read(), expected);
}

// Each rank sends an element to each.
void ExpectExchange(Engine& engine, Compute* compute) {
  const Config& config = engine.config();
  const auto size = static_cast<std::size_t>(config.size);
  Floats input(compute, size), output(compute, size);
  input.Set(static_cast<float>(config.rank));
  compute->Mark();
  Request request = Allreduce(input, output);
  request.operation.kind = CollectiveKind::kAlltoall;
  request.splits.assign(size, 1);
  request.output.data = nullptr;
  request.allocate = [&](const std::vector<std::int64_t>&, void** data) {
    *data = output.Address();
    return Status();
  };
  ExpectOk(Await(engine, std::move(request)));
  ExpectOk(compute->AwaitWritten());
  std::vector<float> expected;
  for (std::size_t from = 0; from < size; ++from) expected.push_back(static_cast<float>(from));
  EXPECT_EQ(output.Read(), expected);
}

// A batch of several tensors.
void ExpectSums(Engine& engine, Compute* compute) {
  constexpr std::uint32_t kTensors = 5;
  const Config& config = engine.config();
  const std::uint64_t ticket = DrawTicket(engine);
  std::vector<std::unique_ptr<Floats>> tensors;
  std::vector<cuda::Order> orders(kTensors);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    tensors.push_back(std::make_unique<Floats>(compute, kStartFloats));
    tensors[i]->Set(static_cast<float>(i));
    compute->Mark(&orders[i]);
    requests.push_back(
        InGroup(Allreduce(*tensors[i], "several", &orders[i], &orders[i]), ticket, i, kTensors));
  }
  for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    ExpectOk(Compute::AwaitWritten(orders[i]));
    EXPECT_EQ(tensors[i]->Read(), std::vector<float>(kStartFloats, static_cast<float>(i) * config.size));
  }
}

// A batch of a sum and an all-to-all.
void ExpectSumBesideExchange(Engine& engine, Compute* compute) {
  const Config& config = engine.config();
  const auto size = static_cast<std::size_t>(config.size);
  const std::uint64_t ticket = DrawTicket(engine);
  cuda::Order orders[2];
  Floats sum(compute, kStartFloats), input(compute, size), output(compute, size);
  sum.Set(1);
  input.Set(static_cast<float>(config.rank));
  std::vector<Request> requests;
  for (cuda::Order& order : orders) compute->Mark(&order);
  requests.push_back(InGroup(Allreduce(sum, "sum", &orders[0], &orders[0]), ticket, 0, 2));
  Request exchange = Allreduce(input, "exchange", &orders[1], &orders[1]);
  exchange.operation.kind = CollectiveKind::kAlltoall;
  exchange.splits.assign(size, 1);
  exchange.output.data = nullptr;
  exchange.allocate = [&](const std::vector<std::int64_t>&, void** data) {
    *data = output.Address();
    return Status();
  };
  requests.push_back(InGroup(std::move(exchange), ticket, 1, 2));
  for (const Status& status : AwaitAll(engine, std::move(requests))) ExpectOk(status);
  for (const cuda::Order& order : orders) ExpectOk(Compute::AwaitWritten(order));
  EXPECT_EQ(sum.Read(), std::vector<float>(kStartFloats, static_cast<float>(config.size)));
  std::vector<float> expected;
  for (std::size_t from = 0; from < size; ++from) expected.push_back(static_cast<float>(from));
  EXPECT_EQ(output.Read(), expected);
}

// In a set of two ranks whose numbers have this sum.
void ExpectSumOfPair(Engine& engine, Compute* compute, CommunicatorId set, int sum) {
  Floats data(compute, kStartFloats);
  data.Set(static_cast<float>(engine.config().rank));
  compute->Mark();
  Request request = Allreduce(data, data);
  request.communicator = set;
  ExpectOk(Await(engine, std::move(request)));
  ExpectOk(compute->AwaitWritten());
  EXPECT_EQ(data.Read(), std::vector<float>(kStartFloats, static_cast<float>(sum)));
}

// Runs a job whose first collective is `first`. Returns its log.
std::string RunOnFaulty(int size, std::chrono::milliseconds timeout, void (*first)(Engine&, Compute*)) {
  ::testing::internal::CaptureStderr();
  RunRanks(
      size,
      [&](int rank, Engine& engine) {
        Compute compute(rank);
        first(engine, &compute);
        for (int step = 0; step < 3; ++step) ExpectSum(engine, &compute, step);
        ExpectGather(engine, &compute);
        EXPECT_EQ(NcclBytes(engine), 0u);
      },
      [&](int, Config* config) { UseFaulty(config, timeout); });
  return ::testing::internal::GetCapturedStderr();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Kind {
  const char* fault;
  const char* text;  // of NCCL
  std::chrono::milliseconds limit;
  std::vector<const char*> said;  // in the warning; %r stands for the rank
};

const std::vector<Kind>& Kinds() {
  using std::chrono::seconds;
  static const auto& kinds = *new std::vector<Kind>{
      {"init_fails:%r",
       "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left on "
       "device (28)",
       seconds(30),
       {"rank %r: a call that NCCL had begun failed: ", "(2): Error while creating shared memory segment",
        ". Remedy: a container needs more shared memory: docker run --shm-size=1g"}},
      {"init_hangs:%r",
       "",
       seconds(1),
       {"NCCL's communicator was not made within 1 s (SMDDP_NCCL_TIMEOUT) on ", "rank %r",
        "NCCL_SOCKET_IFNAME"}},
      {"late:%r:1500",
       "",
       seconds(1),
       {"NCCL's communicator was not made within 1 s (SMDDP_NCCL_TIMEOUT) on rank %r. Remedy: "}},
      {"wrong_sums:%r",
       "",
       seconds(30),
       {"rank %r: NCCL gives wrong results: element 0 of a sum is 12245933, and should be ",
        ". Remedy: set NCCL_P2P_DISABLE=1"}},
      {"wrong_exchange:%r",
       "",
       seconds(30),
       {"rank %r: NCCL gives wrong results: element 0 of an all-to-all is 12245933, and should be "}},
      {"kernel_hangs:%r",
       "",
       seconds(2),
       {"NCCL's first calls did not end within 2 s (SMDDP_NCCL_TIMEOUT) on ", "rank %r",
        ". Remedy: set NCCL_P2P_DISABLE=1; if that does not help, NCCL_NVLS_ENABLE=0"}},
      {"fails_after:%r:0",
       "NVLS multicast is refused",
       seconds(30),
       {"rank %r: ", "NVLS multicast is refused. Remedy: set NCCL_NVLS_ENABLE=0"}},
  };
  return kinds;
}

std::string ForRank(std::string text, int rank) {
  const std::size_t at = text.find("%r");
  return at == std::string::npos ? text : text.replace(at, 2, std::to_string(rank));
}

// The driver's lock is held by a thread that frees memory, and waits for NCCL's kernel.
TEST(NcclStartUnderLock, AFirstKernelThatHangsLeadsThroughTheHost) {
  const Fault fault("kernel_hangs:1");
  std::atomic<int> done{0};
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        Compute compute(rank);
        std::thread frees([&] {
          const Compute own(rank);  // the context
          while (done < 2) {
            CUdeviceptr spare = 0;
            EXPECT_EQ(cuMemAlloc_v2(&spare, 1), CUDA_SUCCESS);
            EXPECT_EQ(cuMemFree_v2(spare), CUDA_SUCCESS);
          }
        });
        for (int step = 0; step < 3; ++step) ExpectSum(engine, &compute, step);
        EXPECT_EQ(NcclBytes(engine), 0u);
        ++done;
        frees.join();
      },
      [](int, Config* config) { UseFaulty(config, std::chrono::seconds(2)); });
}

class NcclStartTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, NcclStartTest, ::testing::Values(2, 3, 8));

TEST_P(NcclStartTest, AFailedStartOnAnyRankLeadsThroughTheHost) {
  const int size = GetParam();
  for (const Kind& kind : Kinds()) {
    for (const int rank : {0, size - 1}) {
      const std::string name = ForRank(kind.fault, rank);
      SCOPED_TRACE(name);
      const Fault fault(name, kind.text);
      const bool exchanges = name.find("exchange") != std::string::npos;
      const auto first = exchanges ? ExpectExchange : rank == 0 ? ExpectGather : ExpectSums;
      const std::string log = RunOnFaulty(size, kind.limit, first);
      EXPECT_EQ(Count(log, "warning]"), 1) << log;
      EXPECT_EQ(Count(log, "NCCL does not work here, so tensors of GPUs are copied"), 1) << log;
      for (const char* const part : kind.said) EXPECT_GE(Count(log, ForRank(part, rank)), 1) << log;
    }
  }
}

// The others make no calls before (tests/faulty_nccl).
TEST(NcclStart, AStartThatIsLateButInTimeIsUsed) {
  const Fault fault("late:1:500");
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        ExpectSums(engine, &compute);
        for (int step = 0; step < 3; ++step) ExpectSum(engine, &compute, step);
        EXPECT_GT(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config); });
}

TEST(NcclStart, AnOldNcclIsUsedWithOneWarning) {
  ::setenv("FAULTY_NCCL_VERSION", "21605", 1);
  ::testing::internal::CaptureStderr();
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        ExpectSums(engine, &compute);
        EXPECT_GT(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config); });
  const std::string log = ::testing::internal::GetCapturedStderr();
  ::unsetenv("FAULTY_NCCL_VERSION");
  EXPECT_EQ(Count(log, "is old: before 2.18.5, NCCL may hang"), 1) << log;
}

// Note [Memory of an exchange].
TEST(NcclStart, NothingIsExchangedForASum) {
  const Fault fault("wrong_exchange:1");
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        ExpectSums(engine, &compute);
        EXPECT_GT(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config); });
}

// The thread that aborts is left behind.
TEST(NcclStart, AnAbortThatHangsHoldsNothingUp) {
  const Fault fault("kernel_hangs:1,abort_hangs:1");
  const std::string log = RunOnFaulty(2, std::chrono::seconds(1), ExpectSums);
  EXPECT_EQ(Count(log, "NCCL's first calls did not end within "), 1) << log;
}

// Calls that block although NCCL was asked not to, as with NCCL_COMM_BLOCKING=1 in nccl.conf. The threads in
// the first two of them are left behind.
TEST(NcclStart, ACallThatBlocksLeadsThroughTheHost) {
  const std::pair<const char*, const char*> kinds[] = {
      {"init_blocks:1", "communicator was not made within 1 s (SMDDP_NCCL_TIMEOUT) on "},
      {"id_blocks:0", "communicator was not made within 1 s (SMDDP_NCCL_TIMEOUT) on "},
      {"launch_blocks:1", "first calls did not end within 1 s (SMDDP_NCCL_TIMEOUT) on "},
  };
  for (const auto& [kind, said] : kinds) {
    SCOPED_TRACE(kind);
    const Fault fault(kind);
    const std::string log = RunOnFaulty(2, std::chrono::seconds(1), ExpectSums);
    EXPECT_EQ(Count(log, "warning]"), 1) << log;
    EXPECT_EQ(Count(log, said), 1) << log;
  }
}

// The collectives of a batch are prepared one by one, and ranks come to the proof at any of them.
TEST(NcclStart, ASumBesideAnExchange) {
  for (int trial = 0; trial < 10; ++trial) {
    RunRanks(
        3,
        [](int rank, Engine& engine) {
          Compute compute(rank);
          for (int step = 0; step < 3; ++step) ExpectSumBesideExchange(engine, &compute);
          EXPECT_GT(NcclBytes(engine), 0u);
        },
        [](int, Config* config) { UseFaulty(config, std::chrono::seconds(3)); });
  }
}

// Rank 0 starts for one set after the other. Each start takes two seconds, and has its own time.
TEST(NcclStart, ASetThatWaitsForTheStartOfAnother) {
  const Fault fault("late:0:2000");
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        CommunicatorId sets[] = {kWorld, kWorld};
        for (const int other : {1, 2}) ExpectOk(engine.CreateCommunicator({0, other}, &sets[other - 1]));
        std::vector<std::thread> threads;
        for (const int other : {1, 2}) {
          if (rank != 0 && rank != other) continue;
          threads.emplace_back([&, other] {
            Compute own(rank);
            for (int step = 0; step < 3; ++step) ExpectSumOfPair(engine, &own, sets[other - 1], other);
          });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_GT(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config, std::chrono::milliseconds(3500)); });
}

// The first rank of the hosts has no stream for NCCL, so it never asks for its turn.
TEST(NcclStart, AFirstRankWithoutAStream) {
  static std::atomic<bool> refuses{false};
  const Compute first(0);
  auto* const driver = const_cast<cuda::Driver*>(first.device->driver());
  static const auto create = driver->StreamCreateWithPriority;
  driver->StreamCreateWithPriority = [](cuda::Stream* stream, unsigned flags, int priority) {
    CUdevice device = -1;
    static_cast<void>(cuCtxGetDevice(&device));
    return refuses && device == DeviceOfRank(0) ? cuda::Result{2} : create(stream, flags, priority);
  };
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        Floats data(&compute, kStartFloats);
        data.Set(1);
        compute.Mark();
        Request request = Allreduce(data, data);  // which NCCL does not do
        request.operation.op = ReduceOp::kMin;
        ExpectOk(Await(engine, std::move(request)));
        ExpectOk(compute.AwaitWritten());
        if (rank == 0) refuses = true;
        for (int step = 0; step < 3; ++step) ExpectSum(engine, &compute, step);
        EXPECT_EQ(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config); });
  refuses = false;
  driver->StreamCreateWithPriority = create;
}

// Process sets do not try again, nor wait for what hangs.
TEST(NcclStart, ProcessSetsGoThroughTheHostToo) {
  const Fault fault("kernel_hangs:0");
  ::testing::internal::CaptureStderr();
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        ExpectSum(engine, &compute, 1);
        CommunicatorId set = kWorld;
        ExpectOk(engine.CreateCommunicator({0, 1}, &set));
        const auto begin = std::chrono::steady_clock::now();
        ExpectSum(engine, &compute, 2, set);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
        EXPECT_EQ(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config, std::chrono::seconds(2)); });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(Count(log, "warning]"), 1) << log;
}

// The step fails while NCCL starts; the next one has another start.
TEST(NcclStart, AStepThatFailsMeanwhile) {
  for (const char* const kind : {"late:1:1000", "kernel_hangs:1", "init_hangs:1"}) {
    SCOPED_TRACE(kind);
    auto fault = std::make_unique<Fault>(kind);
    RunRanks(
        3,
        [&](int rank, Engine& engine) {
          Compute compute(rank);
          std::thread fails([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            if (rank == 2) engine.FailStep(kWorld, kNoStep, "on purpose");
          });
          const Floats data(&compute, kStartFloats);
          compute.Mark();
          ExpectError(Await(engine, Allreduce(data, data)), "on purpose");
          fails.join();
          static_cast<void>(compute.AwaitWritten());
          for (int step = 0; step < 3; ++step) ExpectSum(engine, &compute, step);
        },
        [](int, Config* config) { UseFaulty(config, std::chrono::seconds(2)); });
  }
}

TEST(NcclStart, ThatIsRequiredEndsTheJob) {
  const Fault fault("init_fails:1", "Cuda failure 2 'out of memory'");
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        const Floats data(&compute, kStartFloats);
        compute.Mark();
        const Status status = Await(engine, Allreduce(data, data));
        ExpectError(status, "SMDDP_NCCL=required, and NCCL does not work here: rank 1: ");
        ExpectError(status, "'out of memory'. Remedy: leave memory of the GPU to NCCL");
        static_cast<void>(compute.AwaitWritten());
      },
      [](int, Config* config) {
        UseFaulty(config);
        config->log_level = 4;
        config->nccl_required = true;
      },
      /*orderly=*/false);
}

// Once it is proven, an error ends the job.
TEST(NcclStart, AnErrorAfterItEndsTheJob) {
  const Fault fault("fails_after:1:4");
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        Status status;
        for (int step = 0; step < 50 && status.ok(); ++step) {
          const Floats data(&compute, kStartFloats);
          compute.Mark();
          status = Await(engine, Allreduce(data, data));
          static_cast<void>(compute.AwaitWritten());
        }
        ExpectError(status, "a call that NCCL had begun failed: ");
        ExpectError(status, ". Remedy: ");
      },
      [](int, Config* config) {
        UseFaulty(config);
        config->log_level = 4;
      },
      /*orderly=*/false);
}

// NCCL would say that a GPU is there twice.
TEST(NcclSlices, GoThroughTheHost) {
  ::testing::internal::CaptureStderr();
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Compute compute(rank);
        for (int step = 0; step < 3; ++step) ExpectSum(engine, &compute, step);
        EXPECT_EQ(NcclBytes(engine), 0u);
      },
      [](int, Config* config) { UseFaulty(config); });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(Count(log, "warning]"), 1) << log;
  EXPECT_EQ(Count(log, "rank 0 and rank 1 have parts of one GPU (MIG), which NCCL does not join"), 1) << log;
}

// Rank 1 says why it does not use NCCL, and the job ends.
TEST(NcclStart, ABlockingNcclIsNotUsed) {
  for (const bool required : {false, true}) {
    RunRanks(
        2,
        [required](int rank, Engine& engine) {
          Compute compute(rank);
          if (!required) {
            ExpectSum(engine, &compute, 1);
            EXPECT_EQ(NcclBytes(engine), 0u);
            return;
          }
          const Floats data(&compute, kStartFloats);
          compute.Mark();
          ExpectError(
              Await(engine, Allreduce(data, data)),
              "SMDDP_NCCL=required, and NCCL is not used: NCCL_COMM_BLOCKING=1 lets NCCL's calls wait");
          static_cast<void>(compute.AwaitWritten());
        },
        [required](int rank, Config* config) {
          UseFaulty(config);
          config->log_level = 4;
          config->nccl_required = required;
          config->nccl_blocks = rank == 1;
        },
        /*orderly=*/!required);
  }
}

TEST(NcclRemedy, FollowsFromTheText) {
  const std::pair<const char*, const char*> kPairs[] = {
      {"Error while creating shared memory segment /dev/shm/nccl-a (size 1)", "--shm-size=1g"},
      {"Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'",
       "NCCL_NVLS_ENABLE=0"},
      {"cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", "set_memory_growth"},
      {"Cuda failure 35 'CUDA driver version is insufficient for CUDA runtime version'", "nvidia-nccl-cu12"},
      {"Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 7000", "MIG"},
      {"Cuda failure 217 'peer access is not supported between these two devices'", "NCCL_P2P_DISABLE=1"},
      {"NCCL's communicator was not made within 60 s (SMDDP_NCCL_TIMEOUT) on rank 1", "NCCL_SOCKET_IFNAME"},
      {"unhandled cuda error (1): Cuda failure 1 'invalid argument'", "NCCL_CUMEM_HOST_ENABLE=0"},
      {"internal error (3)", "NCCL_DEBUG=WARN"},
  };
  for (const auto& [text, remedy] : kPairs) {
    EXPECT_NE(nccl::RemedyFor(text).find(remedy), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tf_smddp::testing
