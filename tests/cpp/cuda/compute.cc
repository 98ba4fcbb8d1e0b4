#include "tests/cpp/cuda/compute.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/engine/watch/statistics.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

void Require(CUresult result) { ASSERT_EQ(result, CUDA_SUCCESS); }

}  // namespace

CUdevice DeviceOfRank(int rank) {
  int devices = 0;
  Require(cuInit(0));
  Require(cuDeviceGetCount(&devices));
  return rank % devices;
}

Compute::Compute(int rank) {
  CUcontext context = nullptr;
  Require(cuDevicePrimaryCtxRetain(&context, DeviceOfRank(rank)));
  Require(cuCtxSetCurrent(context));
  Require(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  pretend_gpu_set_stream_role(stream_, "compute");
  order.compute = reinterpret_cast<cuda::Stream>(stream_);
  const Status status = cuda::Device::Of(order.compute, &device);
  EXPECT_TRUE(status.ok()) << status.message();
}

Compute::~Compute() {
  Require(cuStreamSynchronize(stream_));
  Require(cuStreamDestroy_v2(stream_));
}

void Compute::Mark(cuda::Order* marked) const {
  marked->compute = order.compute;
  const Status status = device->Mark(marked);
  EXPECT_TRUE(status.ok()) << status.message();
}

Status Compute::AwaitWritten(const cuda::Order& order) {
  const auto written = std::make_shared<std::promise<Status>>();
  order.writes->WhenEnded([written](const Status& status) { written->set_value(status); });
  return written->get_future().get();
}

Floats::Floats(Compute* compute, std::size_t count) : compute_(compute), count_(count) {
  Require(cuMemAlloc_v2(&data_, Bytes()));
}

Floats::~Floats() {
  Require(cuStreamSynchronize(compute_->stream()));
  Require(cuMemFree_v2(data_));
}

void Floats::Set(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  Require(cuMemsetD32Async(data_, bits, count_, compute_->stream()));
}

void Floats::CopyTo(Floats* other) const {
  Require(cuMemcpyDtoDAsync_v2(other->data_, data_, Bytes(), compute_->stream()));
}

std::vector<float> Floats::Read() const {
  std::vector<float> content(count_);
  Require(cuMemcpyDtoHAsync_v2(content.data(), data_, Bytes(), compute_->stream()));
  Require(cuStreamSynchronize(compute_->stream()));
  return content;
}

Request Allreduce(const Floats& input, const Floats& output) {
  Request request = MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, nullptr, nullptr,
                                static_cast<std::int64_t>(input.count()));
  request.input = input.Input();
  request.output = output.Output();
  return request;
}

Request Allreduce(const Floats& data, const char* label, cuda::Order* input, cuda::Order* output) {
  Request request = Allreduce(data, data);
  request.label = label;
  request.input.stream = input;
  request.output.stream = output;
  return request;
}

Status UseGpus(Engine& engine, Compute* compute, const Floats& data) {
  EngineStats stats;
  const CollectiveStats& sums = stats.collectives[static_cast<std::size_t>(CollectiveKind::kAllreduce)];
  while (sums.nccl_bytes == 0) {
    compute->Mark();
    Status status = Await(engine, Allreduce(data, data));
    if (status.ok()) status = compute->AwaitWritten();
    if (status.ok()) status = engine.Stats(/*reset=*/false, &stats);
    if (!status.ok()) return status;
  }
  return {};
}

Hold::Hold(CUstream stream) {
  const auto wait = [](void* hold) { static_cast<Hold*>(hold)->let_go_.get_future().wait(); };
  Require(cuLaunchHostFunc(stream, wait, this));
}

Freeing::Freeing(const Compute& compute) {
  CUdeviceptr spare = 0;
  Require(cuCtxGetCurrent(&context_));
  Require(cuMemAlloc_v2(&spare, 1));
  frees_ = Start([spare] { Require(cuMemFree_v2(spare)); });
  for (bool waits = false; !waits;) {
    auto answered = std::make_shared<std::promise<void>>();
    std::future<void> answer = answered->get_future();
    if (asks_.joinable()) asks_.join();
    asks_ = Start([answered, stream = compute.stream()] {
      cuStreamQuery(stream);
      answered->set_value();
    });
    waits = answer.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  }
}

Freeing::~Freeing() {
  frees_.join();
  asks_.join();
}

std::thread Freeing::Start(std::function<void()> call) {
  return std::thread([context = context_, call = std::move(call)] {
    Require(cuCtxSetCurrent(context));
    call();
  });
}

}  // namespace tf_smddp::testing
