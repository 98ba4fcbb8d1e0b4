// The tables of types.h: a name, a size and the operations of every type. The values are part of the
// manifest.
#include "kernels/common/types.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

struct Expected {
  DType dtype;
  int value;
  const char* name;
  std::size_t bytes;
  bool inexact;
  const char* undefined;  // the operations that the type does not have, a space after each
};

constexpr Expected kExpected[] = {
    {DType::kFloat16, 0, "float16", 2, true, ""},
    {DType::kBFloat16, 1, "bfloat16", 2, true, ""},
    {DType::kFloat32, 2, "float32", 4, true, ""},
    {DType::kFloat64, 3, "float64", 8, true, ""},
    {DType::kInt32, 4, "int32", 4, false, ""},
    {DType::kInt64, 5, "int64", 8, false, ""},
    {DType::kUInt8, 6, "uint8", 1, false, ""},
    {DType::kBool, 7, "bool", 1, false, "sum average product "},
    {DType::kInt8, 8, "int8", 1, false, ""},
    {DType::kInt16, 9, "int16", 2, false, ""},
    {DType::kUInt16, 10, "uint16", 2, false, ""},
    {DType::kUInt32, 11, "uint32", 4, false, ""},
    {DType::kUInt64, 12, "uint64", 8, false, ""},
    {DType::kComplex64, 13, "complex64", 8, true, "min max "},
    {DType::kComplex128, 14, "complex128", 16, true, "min max "},
};

TEST(Types, EveryDType) {
  ASSERT_EQ(std::size(kExpected), static_cast<std::size_t>(kNumDTypes));
  for (const Expected& expected : kExpected) {
    EXPECT_EQ(static_cast<int>(expected.dtype), expected.value);
    EXPECT_STREQ(DTypeName(expected.dtype), expected.name);
    EXPECT_EQ(DTypeBytes(expected.dtype), expected.bytes) << expected.name;
    EXPECT_EQ(IsInexact(expected.dtype), expected.inexact) << expected.name;
    std::string undefined;
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!ReduceOpDefined(expected.dtype, op)) undefined += std::string(ReduceOpName(op)) + " ";
    }
    EXPECT_EQ(undefined, expected.undefined) << expected.name;
  }
}

TEST(Types, ReduceOpNamesRoundTrip) {
  for (int o = 0; o < kNumReduceOps; ++o) {
    ReduceOp op = o == 0 ? ReduceOp::kMax : ReduceOp::kSum;
    ASSERT_TRUE(ParseReduceOp(ReduceOpName(static_cast<ReduceOp>(o)), &op));
    EXPECT_EQ(static_cast<int>(op), o);
  }
  ReduceOp op = ReduceOp::kMin;
  EXPECT_FALSE(ParseReduceOp("mean", &op));
  EXPECT_FALSE(ParseReduceOp("Sum", &op));
  EXPECT_EQ(op, ReduceOp::kMin);
}

}  // namespace
}  // namespace tf_smddp
