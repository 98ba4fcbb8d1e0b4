// Buffers in memory that the CPU may not touch (test_device.h): the engine never does. The wider matrix,
// random schedules, process sets and leaving have such buffers too: pairwise_matrix_test, schedule_test,
// communicator_test, leave_test.
#include "kernels/memory/buffer.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/memory/arena.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/step.h"
#include "tests/cpp/testing/test_device.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

using Stream = TestDevice::Stream;

constexpr std::size_t kLarge = 100000;  // floats; several chunks

// Floats on the device, reduced in place.
class Floats {
 public:
  // Puts the first content on `stream`.
  Floats(Stream* stream, std::size_t count, float value)
      : stream_(stream), count_(count), data_(TestDevice::Get().Allocate(count * sizeof(float))) {
    Set(value);
  }
  ~Floats() {
    stream_->Synchronize();
    TestDevice::Get().Free(data_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  void Set(float value) {
    const std::vector<float> content(count_, value);
    const auto* bytes = reinterpret_cast<const std::byte*>(content.data());
    stream_->Write({bytes, bytes + count_ * sizeof(float)}, data_);
  }

  bool AllAre(float value) {
    std::vector<float> content(count_);
    std::memcpy(content.data(), stream_->Read(data_, count_ * sizeof(float)).data(), count_ * sizeof(float));
    return content == std::vector<float>(count_, value);
  }

  // An allreduce, whose result is put on `output_stream`.
  Request Allreduce(Stream* output_stream) const {
    Request request = MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, nullptr,
                                  nullptr, static_cast<std::int64_t>(count_));
    request.input = InputBuffer(data_, &TestDevice::Get(), stream_);
    request.output = Buffer(data_, &TestDevice::Get(), output_stream);
    return request;
  }
  Request Allreduce() const { return Allreduce(stream_); }

 private:
  Stream* const stream_;
  const std::size_t count_;
  std::byte* const data_;
};

Stream* StreamOf(int number) { return TestDevice::Get().StreamOf(number); }

// Streams for outputs alone.
Stream* OutputStreamOf(int rank) { return StreamOf(100 + rank); }

// Copies give their spans back when they have ended, which is soon.
void ExpectEmptyArena(const Arena& arena) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (arena.used_bytes() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(arena.used_bytes(), 0u);
}

void ExpectNextStepSucceeds(int rank, Engine& engine) {
  Floats data(StreamOf(rank), kLarge, 2.0f);
  const Status status = Await(engine, data.Allreduce());
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(data.AllAre(2.0f * static_cast<float>(engine.config().size)));
}

bool Contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

constexpr int kTouched = 42;
TestDevice* touched_device = nullptr;

// Rank 0 passes the device's memory off as host memory. Ends the process when the CPU touches it.
void ReduceAsIfOnHost(int size, std::size_t count) {
  touched_device = &TestDevice::Get();
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    ::_exit(touched_device->Contains(info->si_addr) ? kTouched : EXIT_FAILURE);
  };
  ::sigaction(SIGSEGV, &action, nullptr);
  RunRanks(size, [count](int rank, Engine& engine) {
    Floats data(StreamOf(rank), count, 1.0f);
    std::vector<float> input(count), output(count);
    Request request = AllreduceFloats(input, &output);
    if (rank == 0) request.input = data.Allreduce().input.data;
    Await(engine, request);
  });
}

// The engine's own threads block all signals, so one that faults there kills the process.
bool Touched(int wait_status) {
  return ::testing::ExitedWithCode(kTouched)(wait_status) || ::testing::KilledBySignal(SIGSEGV)(wait_status);
}

// The other tests can fail.
TEST(BufferDeathTest, TheCpuCannotTouchTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int size : {1, 2}) {
    for (const std::size_t count : {std::size_t{10}, kLarge}) {
      EXPECT_EXIT(ReduceAsIfOnHost(size, count), Touched, "");
    }
  }
}

// On the device are: the tensors of all members but the first; of the first alone; of all; the inputs alone;
// the outputs alone. The other tensors are in private memory or in the arena.
enum class OnDevice { kOthers, kFirst, kAll, kInputs, kOutputs };
constexpr int kNumOnDevice = 5;

std::vector<Placement> Place(OnDevice pattern, int size, bool in_arena, bool in_place) {
  std::vector<Placement> placements;
  for (int member = 0; member < size; ++member) {
    const bool on_device =
        pattern == OnDevice::kFirst ? member == 0 : pattern != OnDevice::kOthers || member > 0;
    placements.push_back({in_arena, in_arena, in_place, on_device && pattern != OnDevice::kOutputs,
                          on_device && pattern != OnDevice::kInputs});
  }
  return placements;
}

std::vector<Trial> Trials(int size) {
  std::vector<Trial> trials;
  unsigned salt = 0;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast, CollectiveKind::kAllgather,
        CollectiveKind::kReducescatter, CollectiveKind::kAlltoall, CollectiveKind::kBarrier}) {
    for (const std::int64_t count : {0, 1, 997, kSanitized ? 20011 : 70001}) {
      for (int pattern = 0; pattern < 2 * kNumOnDevice; ++pattern) {
        constexpr DType kDTypes[] = {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kComplex128};
        Trial trial;
        trial.kind = kind;
        trial.dtype = kDTypes[++salt % 4];
        trial.root = static_cast<int>(salt / 4) % size;
        trial.salt = salt;
        trial.rows = kind == CollectiveKind::kBarrier ? 0 : count;
        if (kind == CollectiveKind::kAllgather)
          trial.rows_of = Deal(count, size, pattern % kNumPatterns, salt);
        for (int sender = 0; kind == CollectiveKind::kAlltoall && sender < size; ++sender) {
          trial.splits.push_back(
              Deal(count, size, pattern % kNumPatterns, salt + static_cast<unsigned>(sender)));
        }
        trial.placements = Place(static_cast<OnDevice>(pattern / 2), size, salt % 3 == 0, pattern % 2 == 1);
        trials.push_back(trial);
      }
    }
  }
  return trials;
}

TEST(Buffer, EveryCollectiveMixedWithTheHost) {
  for (const int size : {1, 2, 3}) {
    if (!kSanitized) RunMatrix(size, Trials(size), 0);  // pairwise_matrix_test has such, too
    RunMatrix(size, Trials(size), 20);
  }
}

// The request is entered when its stream has come to its input; meanwhile, later requests of the rank run.
TEST(Buffer, AnInputIsReadInTheOrderOfItsStream) {
  for (const std::size_t count : {std::size_t{3}, kLarge}) {
    RunRanks(2, [count](int rank, Engine& engine) {
      Stream* const stream = StreamOf(rank);
      Floats data(stream, count, -1.0f);
      if (rank == 0) stream->Hold();
      data.Set(static_cast<float>(rank + 1));
      std::promise<Status> outcome;
      std::future<Status> ended = outcome.get_future();
      Request request = data.Allreduce();
      request.done = [&outcome](const Status& status) { outcome.set_value(status); };
      engine.Submit(std::move(request));
      std::vector<float> host(count, 1.0f);
      const Status status = Await(engine, AllreduceFloats(host, &host));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(host, std::vector<float>(count, 2.0f));
      if (rank == 0) {
        EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
        stream->LetGo();
      }
      EXPECT_TRUE(ended.get().ok());
      EXPECT_TRUE(data.AllAre(3.0f));
    });
  }
}

// A request is complete when its result is on the stream, which need not have come to it.
TEST(Buffer, ARequestCompletesInTheOrderOfTheOutputsStream) {
  for (const std::size_t count : {std::size_t{3}, kLarge}) {
    RunRanks(2, [count](int rank, Engine& engine) {
      Stream* const stream = OutputStreamOf(rank);
      Floats data(StreamOf(rank), count, 1.0f);
      stream->Hold();
      const Status status = Await(engine, data.Allreduce(stream));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(data.AllAre(1.0f));               // the stream of the input comes before
      EXPECT_GT(engine.arena()->used_bytes(), 0u);  // the result waits there
      stream->LetGo();
      stream->Synchronize();
      EXPECT_TRUE(data.AllAre(2.0f));
      ExpectEmptyArena(*engine.arena());
    });
  }
}

// A step fails while its inputs are being copied: its requests end, and the spans when the copies have.
TEST(Buffer, AStepFailsDuringACopy) {
  for (const std::size_t count : {std::size_t{3}, kLarge}) {
    Meeting meeting(3);
    RunRanks(3, [&](int rank, Engine& engine) {
      Stream* const stream = StreamOf(rank);
      Floats first(stream, count, 1.0f), second(stream, count, 1.0f);
      if (rank < 2) stream->Hold();
      Step step(engine);
      std::uint64_t ticket = 0;
      ASSERT_TRUE(step.DrawTicket(kWorld, &ticket));
      step.Submit(InGroup(first.Allreduce(), ticket, 0, 2));
      step.Submit(InGroup(second.Allreduce(), ticket, 1, 2));
      meeting.Await();
      if (rank == 2) step.Fail("disk full", {kWorld});
      const Status status = step.End();
      EXPECT_TRUE(Contains(status, "disk full")) << status.message();
      if (rank < 2) {
        EXPECT_GT(engine.arena()->used_bytes(), 0u);
        stream->LetGo();
      }
      ExpectNextStepSucceeds(rank, engine);
      ExpectEmptyArena(*engine.arena());
    });
  }
}

// The job is aborted while copies are under way in both directions, which end after the engine.
TEST(Buffer, TheJobIsAbortedDuringACopy) {
  RunRanks(
      2,
      [](int rank, Engine& engine) {
        Floats done(StreamOf(rank), kLarge, 1.0f);
        OutputStreamOf(rank)->Hold();
        EXPECT_TRUE(Await(engine, done.Allreduce(OutputStreamOf(rank))).ok());
        Floats waits(StreamOf(rank), kLarge, 1.0f);
        StreamOf(rank)->Synchronize();
        StreamOf(rank)->Hold();
        if (rank == 1) engine.Abort("rank 1 gives up");
        const Status status = Await(engine, waits.Allreduce());
        EXPECT_TRUE(Contains(status, "rank 1 gives up")) << status.message();
        engine.Shutdown();
        StreamOf(rank)->LetGo();
        OutputStreamOf(rank)->LetGo();
        OutputStreamOf(rank)->Synchronize();
      },
      {}, /*orderly=*/false);
}

// A process set is removed, and the job ends, before the streams have come to its results.
TEST(Buffer, AResultOutlivesItsProcessSetAndTheEngine) {
  std::vector<std::unique_ptr<Floats>> results(3);
  RunRanks(3, [&results](int rank, Engine& engine) {
    CommunicatorId id = kWorld;
    ASSERT_TRUE(engine.CreateCommunicator({0, 2}, &id).ok());
    if (rank != 1) {
      results[static_cast<std::size_t>(rank)] = std::make_unique<Floats>(StreamOf(rank), kLarge, 1.0f);
      OutputStreamOf(rank)->Hold();
      Request request = results[static_cast<std::size_t>(rank)]->Allreduce(OutputStreamOf(rank));
      request.communicator = id;
      const Status status = Await(engine, std::move(request));
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
  });
  for (const int rank : {0, 2}) {
    OutputStreamOf(rank)->LetGo();
    OutputStreamOf(rank)->Synchronize();
    EXPECT_TRUE(results[static_cast<std::size_t>(rank)]->AllAre(2.0f));
  }
}

// An input that cannot be copied fails the step on all ranks, and the next one succeeds.
TEST(Buffer, AnInputThatCannotBeCopiedFailsTheStep) {
  for (const bool refused : {true, false}) {
    Meeting meeting(2);
    RunRanks(2, [&](int rank, Engine& engine) {
      Floats data(StreamOf(rank), kLarge, 1.0f);
      if (rank == 1) refused ? StreamOf(rank)->RefuseNext() : StreamOf(rank)->FailNext();
      const Status status = Await(engine, data.Allreduce());
      EXPECT_EQ(status.code(), StatusCode::kInternal);
      for (const char* part :
           {"rank 1", "could not copy the input of allreduce", "from the test device", "on purpose"}) {
        EXPECT_TRUE(Contains(status, part)) << status.message();
      }
      meeting.Await();
      ExpectNextStepSucceeds(rank, engine);
      ExpectEmptyArena(*engine.arena());
    });
  }
}

// The other ranks have their results when one cannot be copied, so no step can fail: the job ends.
TEST(Buffer, AResultThatCannotBeCopiedEndsTheJob) {
  for (const bool refused : {true, false}) {
    RunRanks(
        2,
        [refused](int rank, Engine& engine) {
          Floats data(StreamOf(rank), kLarge, 1.0f);
          Stream* const stream = OutputStreamOf(rank);
          if (rank == 1) refused ? stream->RefuseNext() : stream->FailNext();
          const Status status = Await(engine, data.Allreduce(stream));
          if (rank == 1 && refused) {
            EXPECT_TRUE(Contains(status, "could not copy the result of allreduce")) << status.message();
          }
          stream->Synchronize();
          std::vector<float> host(3, 1.0f);
          Status later;
          while (later.ok()) later = Await(engine, AllreduceFloats(host, &host));
          EXPECT_TRUE(Contains(later, "rank 1 could not copy the result of allreduce")) << later.message();
        },
        {}, /*orderly=*/false);
  }
}

TEST(Buffer, AJobOfOneRankReportsACopyThatFails) {
  RunRanks(1, [](int, Engine& engine) {
    for (const bool refused : {true, false}) {
      Floats data(StreamOf(0), 10, 1.0f);
      for (Stream* const stream : {StreamOf(0), OutputStreamOf(0)}) {
        refused ? stream->RefuseNext() : stream->FailNext();
        Request request = data.Allreduce(OutputStreamOf(0));
        request.operation.prescale = 2.0;  // else it is copied on the device
        const Status status = Await(engine, std::move(request));
        const char* what =
            stream == StreamOf(0) ? "could not copy the input of 'test'" : "the result of 'test'";
        EXPECT_TRUE(Contains(status, what)) << status.message();
      }
      EXPECT_TRUE(Await(engine, data.Allreduce()).ok());
      EXPECT_TRUE(data.AllAre(1.0f));
    }
  });
}

TEST(Buffer, WithoutRoomInTheArenaTheStepFails) {
  const auto small_arena = [](int, Config* config) { config->arena_bytes = 1 << 20; };
  const auto expect_full = [](int rank, const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_TRUE(Contains(status, "the arena is full")) << "rank " << rank << ": " << status.message();
    EXPECT_TRUE(Contains(status, "raise SMDDP_ARENA_BYTES")) << status.message();
  };
  Meeting meeting(2);
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        {
          Floats data(StreamOf(rank), 300000, 1.0f);
          meeting.Await();
          // Rank 1 fails at once; rank 0, whose tensor is on the host, hears of it.
          std::vector<float> host(300000, 1.0f);
          Status status = Await(engine, rank == 1 ? data.Allreduce() : AllreduceFloats(host, &host));
          expect_full(rank, status);
        }
        meeting.Await();
        {
          // The inputs fit, the outputs do not.
          Floats data(StreamOf(rank), 120000, 1.0f), output(StreamOf(rank), 240000, 0.0f);
          Request request = data.Allreduce();
          request.operation.kind = CollectiveKind::kAllgather;
          request.allocate = [to = output.Allreduce().output.data](const std::vector<std::int64_t>&,
                                                                   void** data) {
            *data = to;
            return Status();
          };
          expect_full(rank, Await(engine, std::move(request)));
        }
        meeting.Await();
        ExpectNextStepSucceeds(rank, engine);
        ExpectEmptyArena(*engine.arena());
      },
      small_arena);
}

}  // namespace
}  // namespace tf_smddp::testing
