// Tensors in a GPU's memory go through the engine, on the pretend GPU and under its policies. The streams
// that compute have the role "compute"; those of kernels/cuda have another.
#include "kernels/cuda/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/usage.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kSmall = 3, kLarge = 300000;  // floats; the second is several chunks

// Under each, one of the streams comes too early for whoever does not wait for it.
constexpr const char* kPolicies[] = {"prompt", "random", "compute=lazy,*=prompt", "compute=prompt,*=lazy",
                                     "lazy"};

void ExpectSuccess(Engine& engine, Request request) {
  const Status status = Await(engine, std::move(request));
  EXPECT_TRUE(status.ok()) << status.message();
}

void AwaitWritten(Compute* compute) {
  const Status status = compute->AwaitWritten();
  EXPECT_TRUE(status.ok()) << status.message();
}

class CudaDeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  CudaDeviceTest() { pretend_gpu_set_policy(GetParam()); }
  ~CudaDeviceTest() override { pretend_gpu_set_policy("random"); }
};

INSTANTIATE_TEST_SUITE_P(Policies, CudaDeviceTest, ::testing::ValuesIn(kPolicies));

// Each step writes the inputs anew, in place or not, and reads the outputs.
TEST_P(CudaDeviceTest, AllreduceReadsWhatWasComputedAndIsReadAfterwards) {
  for (const int size : {1, 2, 3}) {
    RunRanks(size, [size](int rank, Engine& engine) {
      Compute compute;
      for (const std::size_t count : {kSmall, kLarge}) {
        Floats input(&compute, count), output(&compute, count);
        for (int step = 0; step < 4; ++step) {
          const Floats& to = step % 2 == 0 ? input : output;
          input.Set(static_cast<float>(step + rank));
          compute.Mark();
          ExpectSuccess(engine, Allreduce(input, to));
          AwaitWritten(&compute);
          const auto sum = static_cast<float>(size * step + size * (size - 1) / 2);
          EXPECT_EQ(to.Read(), std::vector<float>(count, sum));
        }
      }
    });
  }
}

// The output lies where a computation before it still reads: the result must not come before that.
void ExpectThatAnOutputWaits(int size) {
  RunRanks(size, [size](int, Engine& engine) {
    Compute compute;
    Floats input(&compute, kLarge), output(&compute, kLarge), earlier(&compute, kLarge);
    input.Set(1.0f);
    compute.Mark();
    cuda::Order computed = compute.order;
    output.Set(7.0f);
    output.CopyTo(&earlier);
    compute.Mark();
    Request request = Allreduce(input, output);
    request.input.stream = &computed;
    ExpectSuccess(engine, std::move(request));
    AwaitWritten(&compute);
    EXPECT_EQ(earlier.Read(), std::vector<float>(kLarge, 7.0f));
    EXPECT_EQ(output.Read(), std::vector<float>(kLarge, static_cast<float>(size)));
  });
}

TEST_P(CudaDeviceTest, AnOutputIsWrittenAfterTheEarlierUsesOfItsMemory) {
  ExpectThatAnOutputWaits(1);
  ExpectThatAnOutputWaits(2);
}

// The output's memory is free before the input is there.
void ExpectThatAnInputWaits(int size) {
  RunRanks(size, [size](int, Engine& engine) {
    Compute compute;
    Floats input(&compute, kLarge), output(&compute, kLarge);
    cuda::Order free;
    compute.Mark(&free);
    input.Set(1.0f);
    compute.Mark();
    Request request = Allreduce(input, output);
    request.output.stream = &free;
    ExpectSuccess(engine, std::move(request));
    const Status status = Compute::AwaitWritten(free);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output.Read(), std::vector<float>(kLarge, static_cast<float>(size)));
  });
}

TEST_P(CudaDeviceTest, AnInputIsReadAfterWhatComputesIt) {
  ExpectThatAnInputWaits(1);
  ExpectThatAnInputWaits(2);
}

// The output is allocated when all ranks have arrived.
TEST_P(CudaDeviceTest, AllgatherWritesAnOutputThatIsAllocatedLate) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute;
    Floats input(&compute, kLarge), output(&compute, 2 * kLarge), earlier(&compute, 2 * kLarge);
    input.Set(static_cast<float>(rank));
    compute.Mark();
    Request request = Allreduce(input, output);
    request.operation.kind = CollectiveKind::kAllgather;
    request.output = Buffer(nullptr, compute.device, &compute.order);
    request.allocate = [&](const std::vector<std::int64_t>&, void** data) {
      CUcontext context = nullptr;
      EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
      output.Set(7.0f);
      output.CopyTo(&earlier);
      *data = output.Address();
      return compute.device->Mark(&compute.order);
    };
    ExpectSuccess(engine, std::move(request));
    AwaitWritten(&compute);
    EXPECT_EQ(earlier.Read(), std::vector<float>(2 * kLarge, 7.0f));
    std::vector<float> expected(kLarge, 0.0f);
    expected.resize(2 * kLarge, 1.0f);
    EXPECT_EQ(output.Read(), expected);
  });
}

// The tests above can fail: an input that is not waited for is read before it is there.
TEST(CudaDevice, AnInputThatIsNotWaitedForIsReadTooEarly) {
  pretend_gpu_set_policy("compute=lazy,*=prompt");
  RunRanks(2, [](int, Engine& engine) {
    Compute compute;
    Floats data(&compute, kLarge);
    compute.Mark();
    data.Set(1.0f);
    ExpectSuccess(engine, Allreduce(data, data));
    AwaitWritten(&compute);
    EXPECT_NE(data.Read(), std::vector<float>(kLarge, 2.0f));
  });
  pretend_gpu_set_policy("random");
}

TEST(CudaDevice, OurStreamsGoBeforeThoseThatCompute) {
  const Compute compute;
  std::unique_ptr<cuda::OwnStream> stream;
  ASSERT_TRUE(compute.device->NewStream("test", &stream).ok());
  int least = 0, greatest = 0, ours = 0, computing = 0;
  ASSERT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetPriority(reinterpret_cast<CUstream>(stream->handle()), &ours), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetPriority(compute.stream(), &computing), CUDA_SUCCESS);
  EXPECT_EQ(ours, greatest);
  EXPECT_LT(ours, computing);  // the lower number goes first
}

// Whether this process has a thread of this name.
bool HasThread(const std::string& name) {
  const std::vector<std::string> names = ThreadNames();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Ends the process with 0 if the stream for copies to the host, alone, is made for the first copy.
[[noreturn]] void CopyInANewProcess() {
  Compute compute;
  const bool before = HasThread("smddp-from-gpu") || HasThread("smddp-to-gpu");
  const Floats data(&compute, 1);
  compute.Mark();
  float copied = 0;
  std::promise<Status> ended;
  const Status status =
      compute.device->CopyToHost(data.Address(), &copied, sizeof copied, &compute.order,
                                 [&ended](const Status& outcome) { ended.set_value(outcome); });
  const bool well = status.ok() && ended.get_future().get().ok();
  ::_exit(well && !before && HasThread("smddp-from-gpu") && !HasThread("smddp-to-gpu") ? 0 : 1);
}

// Tensors that NCCL reduces need none. The other tests have made some.
TEST(CudaDevice, TheStreamsForCopiesAreMadeForTheFirstCopy) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(CopyInANewProcess(), ::testing::ExitedWithCode(0), "");
}

// Host tensors on one rank and a GPU's on the other are reduced with each other.
TEST(CudaDevice, MeetsTensorsOfTheHost) {
  RunRanks(2, [](int rank, Engine& engine) {
    Compute compute;
    Floats data(&compute, kLarge);
    std::vector<float> host(kLarge, 2.0f);
    data.Set(1.0f);
    compute.Mark();
    ExpectSuccess(engine, rank == 0 ? Allreduce(data, data) : AllreduceFloats(host, &host));
    AwaitWritten(&compute);
    EXPECT_EQ(rank == 0 ? data.Read() : host, std::vector<float>(kLarge, 3.0f));
  });
}

}  // namespace
}  // namespace tf_smddp::testing
