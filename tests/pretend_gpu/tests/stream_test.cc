// Streams, events, host functions, the default stream; what prompt, lazy and random streams promise.
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

void Count(void* count) { ++*static_cast<std::atomic<int>*>(count); }

class StreamTest : public Gpu, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    pretend_gpu_set_policy(GetParam());
    Gpu::SetUp();
  }
};

TEST_P(StreamTest, TasksRunInOrder) {
  const CUstream stream = MakeStream();
  std::vector<int> seen;
  struct Item {
    std::vector<int>* seen;
    int number;
  };
  std::vector<Item> items;
  for (int i = 0; i < 20; i++) items.push_back({&seen, i});
  for (Item& item : items) {
    OK(cuLaunchHostFunc(
        stream,
        [](void* data) {
          auto* item = static_cast<Item*>(data);
          item->seen->push_back(item->number);
        },
        &item));
  }
  OK(cuStreamSynchronize(stream));
  ASSERT_EQ(20u, seen.size());
  for (int i = 0; i < 20; i++) EXPECT_EQ(i, seen[i]);
  OK(cuStreamDestroy_v2(stream));
}

TEST_P(StreamTest, AnEventIsAMarkOfItsLastRecord) {
  const CUstream a = MakeStream(), b = MakeStream();
  const CUevent event = MakeEvent();
  OK(cuEventQuery(event));  // never recorded: there is nothing to wait for
  OK(cuEventSynchronize(event));
  std::atomic<int> count{0};
  OK(cuLaunchHostFunc(a, Count, &count));
  OK(cuEventRecord(event, a));
  OK(cuStreamWaitEvent(b, event, 0));
  std::atomic<int> at_b{0};
  struct Both {
    std::atomic<int>*from, *to;
  } both{&count, &at_b};
  OK(cuLaunchHostFunc(
      b,
      [](void* data) {
        auto* both = static_cast<Both*>(data);
        *both->to = both->from->load();
      },
      &both));
  OK(cuLaunchHostFunc(a, Count, &count));
  OK(cuStreamSynchronize(b));
  EXPECT_GE(at_b, 1);
  OK(cuEventSynchronize(event));
  OK(cuEventQuery(event));
  OK(cuEventDestroy_v2(event));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

TEST_P(StreamTest, ADestroyedEventStillHoldsBackWhoWaitsForIt) {
  const CUstream a = MakeStream(), b = MakeStream();
  const CUevent event = MakeEvent();
  const CUdeviceptr address = Allocate(1);
  OK(cuMemsetD8Async(address, 1, 1, a));
  OK(cuEventRecord(event, a));
  OK(cuStreamWaitEvent(b, event, 0));
  OK(cuEventDestroy_v2(event));
  EXPECT_EQ(1, Read(address, 1, b)[0]);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(address));
}

TEST_P(StreamTest, ADestroyedStreamEndsItsWork) {
  const CUstream stream = MakeStream();
  std::atomic<int> count{0};
  for (int i = 0; i < 5; i++) OK(cuLaunchHostFunc(stream, Count, &count));
  OK(cuStreamDestroy_v2(stream));
  OK(cuCtxSynchronize());
  EXPECT_EQ(5, count);
}

TEST_P(StreamTest, TheDefaultStreamWaitsForBlockingStreamsAndTheyForIt) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, 0));
  const CUdeviceptr address = Allocate(2);
  OK(cuMemsetD8Async(address, 1, 2, stream));
  OK(cuMemsetD8Async(address, 2, 1, nullptr));
  OK(cuMemsetD8Async(address + 1, 3, 1, stream));
  const auto bytes = Read(address, 2, stream);
  EXPECT_EQ(2, bytes[0]);
  EXPECT_EQ(3, bytes[1]);
  OK(cuStreamDestroy_v2(stream));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(address));
}

TEST_P(StreamTest, TimesGoForward) {
  const CUstream stream = MakeStream();
  const CUevent begin = MakeEvent(0), end = MakeEvent(0);
  float milliseconds = -1;
  OK(cuEventRecord(begin, stream));
  OK(cuEventRecord(end, stream));
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
  OK(cuEventDestroy_v2(begin));
  OK(cuEventDestroy_v2(end));
  OK(cuStreamDestroy_v2(stream));
}

TEST_P(StreamTest, AHostFunctionMayWaitForTheThreadThatEnqueuesIt) {
  const CUstream stream = MakeStream();
  std::atomic<bool> let_go{false};
  OK(cuLaunchHostFunc(
      stream,
      [](void* data) {
        while (!*static_cast<std::atomic<bool>*>(data)) std::this_thread::yield();
      },
      &let_go));
  let_go = true;  // a prompt stream does not hold this thread back until now
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy_v2(stream));
}

// Each thread writes on one stream, and reads on another.
TEST_P(StreamTest, ThreadsEnqueueAtOnce) {
  constexpr int kThreads = 4, kRounds = 25;
  const CUdeviceptr address = Allocate(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([this, i, address] {
      OK(cuCtxSetCurrent(context_));
      const CUstream first = MakeStream(), second = MakeStream();
      for (int round = 1; round <= kRounds; round++) {
        const CUevent event = MakeEvent();
        OK(cuMemsetD8Async(address + i, static_cast<unsigned char>(round), 1, first));
        OK(cuEventRecord(event, first));
        OK(cuStreamWaitEvent(second, event, 0));
        OK(cuEventDestroy_v2(event));
        EXPECT_EQ(round, Read(address + i, 1, second)[0]);
      }
      OK(cuStreamDestroy_v2(first));
      OK(cuStreamDestroy_v2(second));
    });
  }
  for (std::thread& thread : threads) thread.join();
  OK(cuMemFree_v2(address));
}

TEST_P(StreamTest, CallbacksGetTheirStream) {
  const CUstream stream = MakeStream();
  CUstream got = nullptr;
  const CUstreamCallback callback = [](CUstream from, CUresult, void* data) {
    *static_cast<CUstream*>(data) = from;
  };
  OK(cuStreamAddCallback(stream, callback, &got, 0));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(stream, got);
  OK(cuStreamQuery(stream));
  OK(cuStreamDestroy_v2(stream));
}

INSTANTIATE_TEST_SUITE_P(Policies, StreamTest, ::testing::Values("prompt", "random", "lazy", "drawn"));

class Moods : public Gpu {};

TEST_F(Moods, APromptTaskIsDoneWhenTheCallReturns) {
  pretend_gpu_set_policy("prompt");
  const CUstream stream = MakeStream();
  const CUdeviceptr address = Allocate(1);
  const CUevent event = MakeEvent();
  for (int i = 0; i < 100; i++) {
    OK(cuMemsetD8Async(address, 1, 1, stream));
    OK(cuStreamQuery(stream));
    OK(cuEventRecord(event, stream));
    OK(cuEventQuery(event));
  }
  OK(cuMemFree_v2(address));
}

TEST_F(Moods, ALazyTaskRunsOnlyWhenSomebodyWaits) {
  pretend_gpu_set_policy("lazy");
  const CUstream stream = MakeStream(), other = MakeStream();
  std::atomic<int> count{0};
  const CUevent first = MakeEvent();
  OK(cuLaunchHostFunc(stream, Count, &count));
  OK(cuEventRecord(first, stream));
  OK(cuLaunchHostFunc(stream, Count, &count));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(first));  // to ask is not to wait
  OK(cuStreamWaitEvent(other, first, 0));
  EXPECT_EQ(0, count);  // who waits is lazy, too
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(1, count);  // what comes after the event does not run
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(2, count);
}

TEST_F(Moods, APolicyKnowsStreamsByTheirRoles) {
  pretend_gpu_set_policy("slow=lazy,*=prompt");
  const CUstream slow = MakeStream("a slow one"), fast = MakeStream("fast"), unnamed = MakeStream("x");
  const CUdeviceptr address = Allocate(1);
  for (const CUstream stream : {fast, unnamed}) {
    OK(cuMemsetD8Async(address, 1, 1, stream));
    OK(cuStreamQuery(stream));
  }
  OK(cuMemsetD8Async(address, 1, 1, slow));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(slow));
  OK(cuStreamSynchronize(slow));
  OK(cuMemFree_v2(address));
}

TEST_F(Moods, AStreamsRoleIsTheNameOfTheLibraryThatMadeIt) {
  pretend_gpu_set_policy("stream_test=lazy,*=prompt");  // this program
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventRecord(MakeEvent(), stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  OK(cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(1, "prompt", pretend_gpu::testing::kNever);
  return RUN_ALL_TESTS();
}
