// A GPU breaks, as after a kernel's access to an illegal address: the job ends with what it was, on all
// ranks.
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kElements = 5000;
constexpr int kMostSteps = 20;

// As an op does: an allreduce of what the stream has computed by now.
Status ReduceComputed(Engine& engine, Compute* compute, const Floats& data) {
  cuda::Order order;
  order.compute = compute->order.compute;
  const Status marked = compute->device->Mark(&order);
  if (!marked.ok()) {
    EXPECT_EQ(marked.code(), StatusCode::kDeviceLost);
    engine.Abort("rank " + std::to_string(engine.config().rank) + ": " + marked.message());
    return marked;
  }
  Request request = Allreduce(data, data);
  request.input.stream = request.output.stream = &order;
  const Status status = Await(engine, std::move(request));
  const Status written = Compute::AwaitWritten(order);
  return status.ok() ? written : status;
}

// The tensors that a rank has on its device. Nothing can be freed on a broken one, so it stays.
struct KeptTensors {
  explicit KeptTensors(int rank) : compute(rank), data(&compute, kElements) {}
  Compute compute;
  Floats data;
};

KeptTensors* MakeTensors(int rank) {
  static auto& mu = *new std::mutex;
  static auto& all = *new std::vector<std::unique_ptr<KeptTensors>>;
  std::lock_guard<std::mutex> lock(mu);
  all.push_back(std::make_unique<KeptTensors>(rank));
  return all.back().get();
}

// The device of rank 1 breaks after `calls` more calls.
void ExpectTheEnd(int calls, bool nccl) {
  SCOPED_TRACE("after " + std::to_string(calls) + " calls, NCCL " + std::to_string(nccl));
  const auto begin = std::chrono::steady_clock::now();
  Meeting meeting(3);
  RunRanks(
      3,
      [&](int rank, Engine& engine) {
        KeptTensors* const tensors = MakeTensors(rank);
        const auto reduce = [&] { return ReduceComputed(engine, &tensors->compute, tensors->data); };
        tensors->data.Set(1.0f);
        ExpectOk(reduce());
        meeting.Await();
        if (rank == 1) pretend_gpu_break_device(1, calls);
        for (int step = 0; step < kMostSteps && reduce().ok(); ++step) continue;
        const Status last = reduce();
        for (const char* part : {"rank 1", " failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"}) {
          // The rank itself may see the call that has failed just now.
          if (rank == 1 && part == std::string("rank 1")) continue;
          EXPECT_NE(last.message().find(part), std::string::npos)
              << "rank " << rank << ": " << last.message();
        }
      },
      [nccl](int, Config* config) { config->nccl = nccl; }, /*orderly=*/false);
  pretend_gpu_break_device(1, -1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(BrokenDevice, EndsTheJobWherever) {
  for (int calls = 0; calls < 16; ++calls) {
    ExpectTheEnd(calls, /*nccl=*/true);
    ExpectTheEnd(calls, /*nccl=*/false);
  }
}

TEST(BrokenDevice, ResultsAfterWhichNothingRunsThere) {
  Status found;
  const cuda::Driver* const driver = cuda::Driver::Get(&found);
  ASSERT_NE(driver, nullptr) << found.message();
  for (const int result : {46, 214, 220, 226, 700, 702, 709, 710, 714, 719, 721, 810, 999}) {
    EXPECT_EQ(driver->Check("cuEventRecord", result).code(), StatusCode::kDeviceLost) << result;
  }
  for (const int result : {1, 2, 201, 400, 600, 701, 720, 801}) {
    EXPECT_EQ(driver->Check("cuEventRecord", result).code(), StatusCode::kInternal) << result;
  }
}

}  // namespace
}  // namespace tf_smddp::testing
