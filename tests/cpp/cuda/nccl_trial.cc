#include "tests/cpp/cuda/nccl_trial.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/cpp/reduce/reference.h"

namespace tf_smddp::testing {
namespace {

std::vector<int> AllRanks(int num_ranks) {
  std::vector<int> ranks(static_cast<std::size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename T>
std::vector<double> Numbers(const std::vector<std::byte>& bytes, double (*value)(T)) {
  std::vector<double> numbers;
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + at, sizeof element);
    numbers.push_back(value(element));
  }
  return numbers;
}

// The values of floats, and of the parts of complex numbers.
std::vector<double> NumbersOf(DType dtype, const std::vector<std::byte>& bytes) {
  switch (dtype) {
    case DType::kFloat16:
      return Numbers<std::uint16_t>(bytes, [](auto bits) { return DecodeHalf(kFloat16Format, bits); });
    case DType::kBFloat16:
      return Numbers<std::uint16_t>(bytes, [](auto bits) { return DecodeHalf(kBFloat16Format, bits); });
    case DType::kFloat32:
    case DType::kComplex64:
      return Numbers<float>(bytes, [](float value) { return double{value}; });
    default:
      return Numbers<double>(bytes, [](double value) { return value; });
  }
}

double UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return std::ldexp(1.0, -kFloat16Format.mantissa_bits);
    case DType::kBFloat16:
      return std::ldexp(1.0, -kBFloat16Format.mantissa_bits);
    case DType::kFloat32:
    case DType::kComplex64:
      return std::numeric_limits<float>::epsilon();
    default:
      return std::numeric_limits<double>::epsilon();
  }
}

bool IsPowerOfTwo(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

// Inputs are small quarters (trial.h), whose sums are exact in all types.
bool Rounds(const Trial& trial, int num_ranks) {
  if (trial.op == ReduceOp::kProduct && DTypeBytes(trial.dtype) == 2) return true;
  const int divisor = trial.op == ReduceOp::kAverage ? num_ranks : 1;
  return !IsPowerOfTwo(trial.prescale) || !IsPowerOfTwo(trial.postscale) || !IsPowerOfTwo(divisor);
}

}  // namespace

Call CallOf(const Trial& trial, int num_ranks) {
  Call call;
  call.operation.kind = trial.kind;
  call.operation.dtype = trial.dtype;
  call.operation.op = trial.op;
  call.operation.prescale = trial.prescale;
  call.operation.postscale = trial.postscale;
  call.num_ranks = num_ranks;
  if (trial.HasRoot()) {
    call.operation.root = RankId(trial.root);
    call.root = ParticipantId(trial.root);
  }
  call.num_rows = static_cast<std::uint64_t>(trial.rows);
  call.row_count = static_cast<std::uint64_t>(trial.row_count);
  for (const std::int64_t rows : trial.rows_of) call.rows.push_back(static_cast<std::uint64_t>(rows));
  for (const auto& splits : trial.splits) {
    call.splits.emplace_back(splits.begin(), splits.end());
  }
  return call;
}

bool ExpectOutput(const Trial& trial, int num_ranks, int rank, const std::vector<std::byte>& output) {
  const std::vector<std::byte> expected = ExpectedOf(trial, AllRanks(num_ranks), rank).output;
  if (output == expected) return true;
  if (!IsReduction(trial.kind) || !IsInexact(trial.dtype) || output.size() != expected.size()) {
    ADD_FAILURE() << "rank " << rank << " of " << num_ranks << ": " << DescribeTrial(trial);
    return false;
  }
  // Zeros of both signs are equal.
  const double steps = Rounds(trial, num_ranks) ? num_ranks + 2 : 0;
  const std::vector<double> is = NumbersOf(trial.dtype, output), should = NumbersOf(trial.dtype, expected);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const double most = steps * UnitOf(trial.dtype) * std::max(std::fabs(should[i]), 4.0);
    if (std::fabs(is[i] - should[i]) <= most) continue;
    ADD_FAILURE() << "rank " << rank << " of " << num_ranks << ": " << DescribeTrial(trial) << ": element "
                  << i << " is " << is[i] << ", and should be " << should[i];
    return false;
  }
  return true;
}

}  // namespace tf_smddp::testing
