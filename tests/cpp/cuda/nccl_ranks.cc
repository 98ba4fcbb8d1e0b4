#include "tests/cpp/cuda/nccl_ranks.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "tests/cpp/cuda/compute.h"

namespace tf_smddp::testing {

void ExpectError(const Status& status, const char* part) {
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string::npos, status.message().find(part)) << status.message();
}

const nccl::Library& PretendNccl() {
  static const std::unique_ptr<const nccl::Library> library = [] {
    Status status;
    auto opened = nccl::Library::Open("", &status);
    EXPECT_NE(nullptr, opened) << status.message();
    return opened;
  }();
  return *library;
}

nccl::UniqueId NewId() {
  nccl::UniqueId id = {};
  EXPECT_EQ(nccl::kSuccess, PretendNccl().GetUniqueId(&id));
  return id;
}

void NcclRank::Order(CUstream first, CUstream then) const {
  cuda::Event event;
  ExpectOk(events->Record(reinterpret_cast<cuda::Stream>(first), &event));
  CUDA_OK(cuStreamWaitEvent(then, reinterpret_cast<CUevent>(event.get()), 0));
}

std::unique_ptr<nccl::Communicator> NcclRank::Join(const nccl::UniqueId& id) const {
  std::unique_ptr<nccl::Communicator> communicator;
  ExpectOk(nccl::Communicator::Make(place, id, num_ranks, rank, &communicator));
  ExpectOk(AwaitReady(communicator.get()));
  return communicator;
}

namespace {

void RunNcclRank(NcclRank rank, const nccl::UniqueId& id,
                 const std::function<void(const NcclRank&, const nccl::UniqueId&)>& body) {
  CUcontext context = nullptr;
  CUDA_OK(cuDevicePrimaryCtxRetain(&context, DeviceOfRank(rank.rank)));
  CUDA_OK(cuCtxSetCurrent(context));
  CUDA_OK(cuStreamCreate(&rank.compute, CU_STREAM_NON_BLOCKING));
  CUDA_OK(cuStreamCreate(&rank.comm, CU_STREAM_NON_BLOCKING));
  pretend_gpu_set_stream_role(rank.compute, "compute");
  pretend_gpu_set_stream_role(rank.comm, "comm");
  Status status;
  rank.place = {&PretendNccl(), cuda::Driver::Get(&status), reinterpret_cast<cuda::Context>(context)};
  ASSERT_TRUE(status.ok()) << status.message();
  rank.events = std::make_shared<cuda::EventPool>(rank.place.driver, rank.place.context);
  body(rank, id);
  CUDA_OK(cuStreamSynchronize(rank.comm));
  CUDA_OK(cuStreamSynchronize(rank.compute));
  CUDA_OK(cuStreamDestroy_v2(rank.comm));
  CUDA_OK(cuStreamDestroy_v2(rank.compute));
}

}  // namespace

void RunNcclRanks(int num_ranks,
                  const std::function<void(const NcclRank& rank, const nccl::UniqueId& id)>& body) {
  const nccl::UniqueId id = NewId();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      NcclRank its;
      its.rank = rank;
      its.num_ranks = num_ranks;
      RunNcclRank(its, id, body);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Status AwaitReady(nccl::Communicator* communicator) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    bool ready = false;
    Status status = communicator->Poll(&ready);
    if (!status.ok() || ready) return status;
    if (std::chrono::steady_clock::now() > end) return Internal("in progress for ten seconds");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc_v2(&data_, std::max<std::size_t>(bytes, 1)));
}

DeviceMemory::~DeviceMemory() { EXPECT_EQ(CUDA_SUCCESS, cuMemFree_v2(data_)); }

void DeviceMemory::Write(const std::vector<std::byte>& content, CUstream stream) const {
  if (content.empty()) return;
  CUDA_OK(cuMemcpyHtoDAsync_v2(data_, content.data(), content.size(), stream));
}

void DeviceMemory::Set(int value, CUstream stream) const {
  CUDA_OK(cuMemsetD32Async(data_, static_cast<unsigned>(value), bytes_ / sizeof(int), stream));
}

std::vector<std::byte> DeviceMemory::Read(CUstream stream) const {
  std::vector<std::byte> content(bytes_);
  if (bytes_ > 0) {
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(content.data(), data_, bytes_, stream));
  }
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream));
  return content;
}

std::vector<int> DeviceMemory::ReadInts(CUstream stream) const {
  const std::vector<std::byte> bytes = Read(stream);
  const int* const ints = reinterpret_cast<const int*>(bytes.data());
  return {ints, ints + bytes.size() / sizeof(int)};
}

std::vector<nccl::NcclCall> SumOfInts(const NcclRank& rank, const DeviceMemory& input,
                                      const DeviceMemory& output, std::size_t count) {
  Call call;
  call.operation.dtype = DType::kInt32;
  call.num_ranks = rank.num_ranks;
  call.num_rows = count;
  std::vector<nccl::NcclCall> calls;
  nccl::AppendCalls(call, ParticipantId(rank.rank), input.address(), output.address(), &calls);
  return calls;
}

}  // namespace tf_smddp::testing
