// The C API with tensors of a GPU, on the pretend GPU and under its policies: a request waits for what is on
// the streams of its buffers, and when it has ended, its results are in the memory.
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/process/smddp.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/process/c_ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kFloats = 300000;

smddp_buffer BufferOf(const Floats& data, CUstream stream) {
  smddp_buffer buffer{};
  buffer.data = data.Address();
  buffer.bytes = data.count() * sizeof(float);
  buffer.memory = SMDDP_CUDA;
  buffer.stream = stream;
  return buffer;
}

smddp_request RequestOf(smddp_collective collective, const int64_t* shape, const smddp_buffer& input,
                        const smddp_buffer& output) {
  smddp_request request;
  smddp_request_init(&request, sizeof request);
  request.collective = collective;
  request.dtype = SMDDP_FLOAT32;
  request.shape = shape;
  request.num_dims = 1;
  request.input = input;
  request.output = output;
  return request;
}

// The number of ranks, and a policy: under each, a stream comes too early for whoever does not wait for it.
class CGpu : public ::testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Policies, CGpu,
                         ::testing::Combine(::testing::Values(1, 2),
                                            ::testing::Values("prompt", "random", "compute=lazy,*=prompt",
                                                              "compute=prompt,*=lazy", "lazy")));

TEST_P(CGpu, BuffersOfOneStreamAndOfTwo) {
  const auto [size, policy] = GetParam();
  RunCRanks(size, [size = size, policy = policy](int rank) {
    pretend_gpu_set_policy(policy);
    Compute compute, other;
    Floats input(&compute, kFloats), output(&other, kFloats), earlier(&other, kFloats);
    const int64_t shape[] = {kFloats};
    for (int step = 0; step < 4; ++step) {
      const float sum = static_cast<float>(size * step + size * (size - 1) / 2);
      input.Set(static_cast<float>(rank + step));
      output.Set(-7.0f);
      output.CopyTo(&earlier);  // which the result must not come before
      smddp_request request = RequestOf(SMDDP_ALLREDUCE, shape, BufferOf(input, compute.stream()),
                                        BufferOf(output, other.stream()));
      if (step % 2 == 0) {
        ExpectSuccess(smddp_run(&request));
      } else {
        std::promise<std::string> end;
        const auto done = [](void* context, smddp_result result, const char* error) {
          static_cast<std::promise<std::string>*>(context)->set_value(result == SMDDP_SUCCESS ? "" : error);
        };
        ExpectSuccess(smddp_submit(&request, done, &end));
        EXPECT_EQ(end.get_future().get(), "");
      }
      EXPECT_EQ(earlier.Read(), std::vector<float>(kFloats, -7.0f));
      EXPECT_EQ(output.Read(), std::vector<float>(kFloats, sum));

      const smddp_buffer in_place = BufferOf(input, compute.stream());
      request = RequestOf(SMDDP_ALLREDUCE, shape, {}, in_place);
      ExpectSuccess(smddp_run(&request));
      EXPECT_EQ(input.Read(), std::vector<float>(kFloats, sum));
    }
  });
}

TEST_P(CGpu, AnAllocatedOutput) {
  const auto [size, policy] = GetParam();
  RunCRanks(size, [size = size, policy = policy](int rank) {
    pretend_gpu_set_policy(policy);
    Compute compute;
    const Floats output(&compute, kFloats * static_cast<std::size_t>(size));
    Floats input(&compute, kFloats);
    input.Set(static_cast<float>(rank));
    const int64_t shape[] = {kFloats};
    smddp_buffer allocated = BufferOf(output, compute.stream());
    allocated.data = nullptr;
    smddp_request request = RequestOf(SMDDP_ALLGATHER, shape, BufferOf(input, compute.stream()), allocated);
    request.allocate_context = output.Address();
    request.allocate = [](void* context, const int64_t*, int) { return context; };
    ExpectSuccess(smddp_run(&request));
    const std::vector<float> result = output.Read();
    for (std::size_t i = 0; i < result.size(); i += kFloats / 3) {
      EXPECT_EQ(result[i], static_cast<float>(i / kFloats));
    }
  });
}

}  // namespace
}  // namespace tf_smddp::testing
