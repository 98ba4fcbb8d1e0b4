// Measures what we do on a GPU, and prints tables: our kernel beside the driver's copies, tensors of a GPU
// that ranks share beside the copies that they take through the host, and packing beside single calls of
// NCCL.
//
// TF_SMDDP_GPU_MIB: how many MiB are moved; 256 if it is not set.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_packing.h"
#include "kernels/common/config.h"
#include "kernels/cuda/copier.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/cuda/nccl_ranks.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

std::size_t MovedBytes() {
  const char* const mib = std::getenv("TF_SMDDP_GPU_MIB");
  return (mib == nullptr ? std::size_t{256} : static_cast<std::size_t>(std::atoi(mib))) << 20;
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best of several times, in seconds, of what `put` puts on the stream.
double BestOf(CUstream stream, const std::function<void()>& put) {
  double best = 1e9;
  for (int time = 0; time < 5; ++time) {
    best = std::min(best, SecondsOf([&] {
                      put();
                      EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
                    }));
  }
  return best;
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) { EXPECT_EQ(cuMemAlloc_v2(&data_, bytes), CUDA_SUCCESS); }
  ~Memory() { EXPECT_EQ(cuMemFree_v2(data_), CUDA_SUCCESS); }
  CUdeviceptr At(std::size_t offset) const { return data_ + offset; }

 private:
  CUdeviceptr data_ = 0;
};

TEST(Measure, Device) {
  const Compute compute;
  char name[100] = {};
  int version = 0;
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
  std::printf("\n%s, driver for CUDA %d.%d\n", name, version / 1000, version % 1000 / 10);
  for (const char* time : {"the first time", "again"}) {
    std::unique_ptr<cuda::Copier> copier;
    const double seconds = SecondsOf(
        [&] { ExpectOk(cuda::Copier::Open(compute.device->driver(), compute.device->context(), &copier)); });
    std::printf("the driver compiled and loaded our device code in %.1f ms, %s\n", 1e3 * seconds, time);
  }
}

TEST(Measure, CopiesOfManyTensors) {
  const Compute compute;
  std::unique_ptr<cuda::Copier> copier;
  ExpectOk(cuda::Copier::Open(compute.device->driver(), compute.device->context(), &copier));
  const Memory from(MovedBytes()), to(MovedBytes());
  std::printf(
      "\n| tensors | KiB each | our kernel, GB/s | one cuMemcpy of all, GB/s | ratio | a cuMemcpy each, GB/s "
      "|\n"
      "|---|---|---|---|---|---|\n");
  const double one = BestOf(compute.stream(), [&] {
    EXPECT_EQ(cuMemcpyDtoDAsync_v2(to.At(0), from.At(0), MovedBytes(), compute.stream()), CUDA_SUCCESS);
  });
  // Bytes that are read and bytes that are written count.
  const double gigabytes = 2e-9 * static_cast<double>(MovedBytes());
  for (const std::size_t bytes : {MovedBytes(), std::size_t{4} << 20, std::size_t{256} << 10,
                                  std::size_t{64} << 10, std::size_t{16} << 10}) {
    std::vector<cuda::Copy> copies;
    for (std::size_t at = 0; at + bytes <= MovedBytes(); at += bytes) {
      copies.push_back({reinterpret_cast<void*>(to.At(at)), reinterpret_cast<void*>(from.At(at)), bytes});
    }
    const double ours =
        BestOf(compute.stream(), [&] { ExpectOk(copier->Put(copies, compute.order.compute)); });
    const double each = BestOf(compute.stream(), [&] {
      for (const cuda::Copy& copy : copies) {
        EXPECT_EQ(
            cuMemcpyDtoDAsync_v2(reinterpret_cast<CUdeviceptr>(copy.to),
                                 reinterpret_cast<CUdeviceptr>(copy.from), copy.count, compute.stream()),
            CUDA_SUCCESS);
      }
    });
    std::printf("| %zu | %zu | %.1f | %.1f | %.2f | %.1f |\n", copies.size(), bytes >> 10, gigabytes / ours,
                gigabytes / one, one / ours, gigabytes / each);
  }
}

// The seconds of the copies that a rank's tensor takes, to pinned memory of the host and back.
double CopiesAlone(const Compute& compute, const Floats& data) {
  const std::size_t bytes = data.count() * sizeof(float);
  void* host = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&host, bytes, 0), CUDA_SUCCESS);
  const auto address = reinterpret_cast<CUdeviceptr>(data.Address());
  const double alone = BestOf(compute.stream(), [&] {
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(host, address, bytes, compute.stream()), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(address, host, bytes, compute.stream()), CUDA_SUCCESS);
  });
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  return alone;
}

// Two ranks share the GPU.
TEST(Measure, AllreduceThroughTheHost) {
  std::printf(
      "\n| MiB | allreduce of 2 ranks, ms | copies to and from the host alone, ms | ratio "
      "|\n|---|---|---|---|\n");
  Meeting meeting(2);
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        Compute compute;
        for (const std::size_t mib :
             {std::size_t{1}, std::max<std::size_t>(MovedBytes() >> 24, 1), MovedBytes() >> 20}) {
          const Floats data(&compute, (mib << 20) / sizeof(float));
          double best = 1e9;
          for (int time = 0; time < 5; ++time) {
            compute.Mark();
            meeting.Await();
            best = std::min(best, SecondsOf([&] {
                              ExpectOk(Await(engine, Allreduce(data, data)));
                              ExpectOk(compute.AwaitWritten());
                            }));
          }
          meeting.Await();
          if (rank == 0) {
            const double copies = CopiesAlone(compute, data);
            std::printf("| %zu | %.2f | %.2f | %.2f |\n", mib, 1e3 * best, 1e3 * copies, best / copies);
          }
          meeting.Await();
        }
      },
      [](int, Config* config) { config->arena_bytes = 2 * MovedBytes() + (std::size_t{64} << 20); });
}

// With one rank, NCCL copies; so this shows what its calls cost, and not its reductions.
TEST(Measure, PackedAndSingleCallsOfNccl) {
  std::printf("\n| tensors | KiB each | single calls, us | packed, us | ratio |\n|---|---|---|---|---|\n");
  RunNcclRanks(1, [](const NcclRank& rank, const nccl::UniqueId& id) {
    auto communicator = rank.Join(id);
    std::unique_ptr<nccl::Packer> packer;
    ExpectOk(nccl::Packer::Open(rank.place, nccl::PackingBufferBytes(Config().bucket_cap_bytes), &packer));
    for (const auto& [tensors, kib] :
         {std::pair(500, 1), std::pair(100, 16), std::pair(100, 64), std::pair(30, 256)}) {
      const std::size_t bytes = static_cast<std::size_t>(kib) << 10;
      const auto total = static_cast<std::size_t>(tensors) * bytes;
      const Memory input(total), output(total);
      std::vector<nccl::NcclCall> calls;
      for (std::size_t at = 0; at < total; at += bytes) {
        nccl::NcclCall call;
        call.send = reinterpret_cast<void*>(input.At(at));
        call.receive = reinterpret_cast<void*>(output.At(at));
        call.count = bytes / sizeof(float);
        call.type = nccl::DataType::kFloat32;
        calls.push_back(call);
      }
      const double single = BestOf(rank.comm, [&] {
        ExpectOk(communicator->Enqueue(calls, rank.comm_stream()));
        ExpectOk(AwaitReady(communicator.get()));
      });
      const double packed = BestOf(rank.comm, [&] {
        packer->Begin(calls);
        ExpectOk(packer->Enqueue(communicator.get(), rank.comm_stream()));
        ExpectOk(AwaitReady(communicator.get()));
        ExpectOk(packer->Unpack(rank.comm_stream()));
      });
      std::printf("| %d | %d | %.0f | %.0f | %.2f |\n", tensors, kib, 1e6 * single, 1e6 * packed,
                  single / packed);
    }
  });
}

}  // namespace
}  // namespace tf_smddp::testing
