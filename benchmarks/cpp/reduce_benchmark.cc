// Speed of Reduce on one thread, beside memcpy of the same bytes. Every case is checked once before
// it is timed.
//
// bytes_per_second counts what must move: each input read once and each output written once. An output in
// place costs no more traffic than that, but one elsewhere makes the CPU read its cache lines first.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/reduce/targets.h"

namespace tf_smddp {
namespace {

constexpr std::size_t kLarge = 25'000'000;  // bytes; the default bucket cap
constexpr std::size_t kInL2 = 64 << 10;

// A pattern that sums exactly in every type: 0 or 1.
void Fill(DType dtype, std::size_t count, void* data) {
  for (std::size_t e = 0; e < count; ++e) {
    const bool one = e % 3 == 0;
    switch (dtype) {
      case DType::kFloat16:
        static_cast<std::uint16_t*>(data)[e] = one ? 0x3C00 : 0;
        break;
      case DType::kBFloat16:
        static_cast<std::uint16_t*>(data)[e] = one ? 0x3F80 : 0;
        break;
      case DType::kFloat32:
        static_cast<float*>(data)[e] = one;
        break;
      case DType::kFloat64:
        static_cast<double*>(data)[e] = one;
        break;
      case DType::kInt32:
        static_cast<std::int32_t*>(data)[e] = one;
        break;
      case DType::kInt64:
        static_cast<std::int64_t*>(data)[e] = one;
        break;
      case DType::kUInt8:
      case DType::kBool:
        static_cast<std::uint8_t*>(data)[e] = one;
        break;
    }
  }
}

// Buffers start at 64-byte boundaries, one page apart, as the arena's spans do.
class Buffers {
 public:
  Buffers(DType dtype, std::size_t bytes, int num)
      : stride_((bytes + 8191) / 4096 * 4096), storage_(stride_ * num + 64) {
    base_ = storage_.data() + (64 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 64) % 64;
    for (int i = 0; i < num; ++i) Fill(dtype, bytes / DTypeBytes(dtype), at(i));
  }
  unsigned char* at(int i) { return base_ + stride_ * i; }

 private:
  std::size_t stride_;
  std::vector<unsigned char> storage_;
  unsigned char* base_;
};

void BM_Memcpy(benchmark::State& state, std::size_t bytes) {
  Buffers buffers(DType::kUInt8, bytes, 2);
  for (auto _ : state) {
    std::memcpy(buffers.at(0), buffers.at(1), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * 2 * bytes));
}

// kAverage keeps the data as it is, in place too, so that the check can be repeated: all inputs are equal.
void BM_Reduce(benchmark::State& state, const ReduceTargetInfo& target, DType dtype, ReduceOp op,
               std::size_t bytes, int num_inputs, int num_outputs, bool in_place) {
  const std::size_t count = bytes / DTypeBytes(dtype);
  Buffers buffers(dtype, bytes, num_inputs + (in_place ? 0 : num_outputs));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int i = 0; i < num_inputs; ++i) inputs.push_back(buffers.at(i));
  for (int k = 0; k < num_outputs; ++k) outputs.push_back(buffers.at(in_place ? k : num_inputs + k));
  const std::vector<unsigned char> expected(buffers.at(0), buffers.at(0) + bytes);

  ReduceOn(target, dtype, op, inputs.data(), num_inputs, outputs.data(), num_outputs, count);
  for (void* output : outputs) {
    if (std::memcmp(output, expected.data(), bytes) != 0) {
      state.SkipWithError("wrong result: run //tests/cpp/reduce:sweep_test");
      return;
    }
  }
  for (auto _ : state) {
    ReduceOn(target, dtype, op, inputs.data(), num_inputs, outputs.data(), num_outputs, count);
    benchmark::ClobberMemory();
  }
  const std::size_t moved = bytes * static_cast<std::size_t>(num_inputs + num_outputs);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * moved));
}

void Register(const ReduceTargetInfo& target, DType dtype, ReduceOp op, std::size_t bytes, int num_inputs,
              int num_outputs, bool in_place) {
  const std::string name = std::string("reduce/") + target.name + "/" + DTypeName(dtype) + "/" +
                           ReduceOpName(op) + "/in:" + std::to_string(num_inputs) +
                           "/out:" + std::to_string(num_outputs) + (in_place ? "/in_place" : "") +
                           "/bytes:" + std::to_string(bytes);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    BM_Reduce(state, target, dtype, op, bytes, num_inputs, num_outputs, in_place);
  });
}

// Runs before main.
const bool registered = [] {
  const std::vector<ReduceTargetInfo> targets = RunnableReduceTargets();
  for (const std::size_t bytes : {kInL2, kLarge}) {
    const std::string name = "memcpy/bytes:" + std::to_string(bytes);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { BM_Memcpy(state, bytes); });
    for (const ReduceTargetInfo& target : targets) {
      Register(target, DType::kFloat32, ReduceOp::kAverage, bytes, 2, 1, true);
      Register(target, DType::kFloat16, ReduceOp::kAverage, bytes, 2, 1, true);
    }
    const ReduceTargetInfo& best = targets.front();
    Register(best, DType::kFloat32, ReduceOp::kMax, bytes, 2, 1, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 2, 1, false);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 2, 2, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 3, 3, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 4, 4, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 8, 8, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 16, 1, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 16, 16, true);
    Register(best, DType::kFloat32, ReduceOp::kAverage, bytes, 64, 64, true);
    for (const DType dtype :
         {DType::kBFloat16, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kUInt8}) {
      Register(best, dtype, ReduceOp::kAverage, bytes, 2, 1, true);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tf_smddp
