// Measures the speed of Reduce on one thread, and of memcpy of the same bytes for comparison. Every case is
// checked once before it is timed.
//
// bytes_per_second counts the bytes that must move: each input is read once, and each output is written once.
// In place that is all the traffic; an output in other memory makes the CPU read its cache lines first.
#include <benchmark/benchmark.h>

#include <complex>
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

// Fills memory with numbers that every type sums exactly: every third one is 1, the others are 0.
void Fill(DType dtype, std::size_t count, void* data) {
  const auto fill = [&](auto one) {
    for (std::size_t e = 0; e < count; ++e)
      static_cast<decltype(one)*>(data)[e] = e % 3 == 0 ? one : decltype(one){};
  };
  switch (dtype) {
    case DType::kFloat16:
      return fill(std::uint16_t{0x3C00});
    case DType::kBFloat16:
      return fill(std::uint16_t{0x3F80});
    case DType::kFloat32:
      return fill(1.0f);
    case DType::kFloat64:
      return fill(1.0);
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return fill(std::uint8_t{1});
    case DType::kInt16:
    case DType::kUInt16:
      return fill(std::uint16_t{1});
    case DType::kInt32:
    case DType::kUInt32:
      return fill(std::uint32_t{1});
    case DType::kInt64:
    case DType::kUInt64:
      return fill(std::uint64_t{1});
    case DType::kComplex64:
      return fill(std::complex<float>(1.0f));
    case DType::kComplex128:
      return fill(std::complex<double>(1.0));
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

// Everything but kSum keeps the data as it is, in place too, so that each call has the same to do: all inputs
// are equal, and 0 or 1. The factors must cancel.
void BM_Reduce(benchmark::State& state, const ReduceTargetInfo& target, const Reduction& reduction,
               std::size_t bytes, int num_inputs, int num_outputs, bool in_place) {
  const std::size_t count = bytes / DTypeBytes(reduction.dtype);
  Buffers buffers(reduction.dtype, bytes, num_inputs + (in_place ? 0 : num_outputs));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int i = 0; i < num_inputs; ++i) inputs.push_back(buffers.at(i));
  for (int k = 0; k < num_outputs; ++k) outputs.push_back(buffers.at(in_place ? k : num_inputs + k));
  const std::vector<unsigned char> expected(buffers.at(0), buffers.at(0) + bytes);

  ReduceOn(target, reduction, inputs.data(), num_inputs, outputs.data(), num_outputs, count);
  for (void* output : outputs) {
    if (std::memcmp(output, expected.data(), bytes) != 0) {
      state.SkipWithError("wrong result: run //tests/cpp/reduce:sweep_test");
      return;
    }
  }
  for (auto _ : state) {
    ReduceOn(target, reduction, inputs.data(), num_inputs, outputs.data(), num_outputs, count);
    benchmark::ClobberMemory();
  }
  const std::size_t moved = bytes * static_cast<std::size_t>(num_inputs + num_outputs);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * moved));
}

void Register(const ReduceTargetInfo& target, const Reduction& reduction, std::size_t bytes, int num_inputs,
              int num_outputs, bool in_place) {
  const bool scaled = reduction.prescale != 1.0 || reduction.postscale != 1.0;
  const std::string name = std::string("reduce/") + target.name + "/" + DTypeName(reduction.dtype) + "/" +
                           ReduceOpName(reduction.op) + (scaled ? "/scaled" : "") +
                           "/in:" + std::to_string(num_inputs) + "/out:" + std::to_string(num_outputs) +
                           (in_place ? "/in_place" : "") + "/bytes:" + std::to_string(bytes);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    BM_Reduce(state, target, reduction, bytes, num_inputs, num_outputs, in_place);
  });
}

// Registers the cases with 2 inputs for each type.
void RegisterTypes(const ReduceTargetInfo& target, std::size_t bytes) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const bool average = ReduceOpDefined(dtype, ReduceOp::kAverage);
    Register(target, {dtype, average ? ReduceOp::kAverage : ReduceOp::kMax}, bytes, 2, 1, true);
    if (average) Register(target, {dtype, ReduceOp::kProduct}, bytes, 2, 1, true);
    if (IsInexact(dtype)) Register(target, {dtype, ReduceOp::kAverage, 0.5, 2.0}, bytes, 2, 1, true);
  }
}

// Runs before main.
const bool registered = [] {
  const std::vector<ReduceTargetInfo> targets = RunnableReduceTargets();
  for (const std::size_t bytes : {kInL2, kLarge}) {
    const std::string name = "memcpy/bytes:" + std::to_string(bytes);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { BM_Memcpy(state, bytes); });
    RegisterTypes(targets.front(), bytes);
    for (std::size_t t = 1; t < targets.size(); ++t) {
      Register(targets[t], {DType::kFloat32, ReduceOp::kAverage}, bytes, 2, 1, true);
      Register(targets[t], {DType::kFloat16, ReduceOp::kAverage}, bytes, 2, 1, true);
    }
    const auto with_float32 = [&](ReduceOp op, int num_inputs, int num_outputs, bool in_place) {
      Register(targets.front(), {DType::kFloat32, op}, bytes, num_inputs, num_outputs, in_place);
    };
    with_float32(ReduceOp::kMax, 2, 1, true);
    with_float32(ReduceOp::kAverage, 2, 1, false);
    with_float32(ReduceOp::kAverage, 2, 2, true);
    with_float32(ReduceOp::kAverage, 3, 3, true);
    with_float32(ReduceOp::kAverage, 4, 4, true);
    with_float32(ReduceOp::kAverage, 8, 8, true);
    with_float32(ReduceOp::kAverage, 16, 1, true);
    with_float32(ReduceOp::kAverage, 16, 16, true);
    with_float32(ReduceOp::kAverage, 64, 64, true);
  }
  return true;
}();

}  // namespace
}  // namespace tf_smddp
