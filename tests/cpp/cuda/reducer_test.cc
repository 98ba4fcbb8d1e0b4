// Many reductions in one launch: the PTX that the library has in it runs on the pretend GPU, and its results
// have the bits of the host's kernels.
#include "kernels/cuda/reducer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/reduce/reduce.h"
#include "tests/cpp/cuda/block.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/testing/matrix.h"

namespace tf_smddp::testing {
namespace {

// Elements of all kinds: random bits, so among floats every exponent, infinities and NaNs.
Bytes RandomElements(std::size_t bytes, bool are_bools, std::mt19937* random) {
  Bytes content(bytes);
  for (std::uint8_t& byte : content) byte = static_cast<std::uint8_t>((*random)() & (are_bools ? 1 : 0xff));
  return content;
}

// Floats whose sums round, rather than become infinite: the upper half of each element has few patterns.
void MakeModerate(DType dtype, Bytes* content) {
  const std::size_t size = DTypeBytes(dtype);
  for (std::size_t i = size - 1; i < content->size(); i += size) {
    (*content)[i] = static_cast<std::uint8_t>(((*content)[i] & 0x80) | 0x3c | ((*content)[i] & 0x03));
  }
}

struct Case {
  Arithmetic arithmetic;
  int num_inputs;
  int num_outputs;
  std::size_t count;
  std::size_t shift;  // of all addresses, in elements
};

class ReducerTest : public ::testing::Test {
 protected:
  ReducerTest() {
    const Status status =
        cuda::Reducer::Open(compute_.device->driver(), compute_.device->context(), &reducer_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  // Does all cases in one go.
  void ExpectHostsBits(const std::vector<Case>& cases, bool in_place) {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<cuda::Reduction> reductions;
    std::vector<Bytes> expected;
    std::vector<std::size_t> first_output;  // of its blocks
    for (const Case& each : cases) {
      const auto& [dtype, op, prescale, postscale] = each.arithmetic;
      const std::size_t size = DTypeBytes(dtype), shift = each.shift * size, bytes = each.count * size;
      cuda::Reduction reduction;
      reduction.dtype = dtype;
      reduction.op = op;
      reduction.prescale = prescale;
      reduction.postscale = postscale;
      reduction.num_inputs = each.num_inputs;
      reduction.num_outputs = each.num_outputs;
      reduction.count = each.count;
      std::vector<Bytes> contents;
      std::vector<const void*> inputs;
      first_output.push_back(blocks.size() + static_cast<std::size_t>(in_place ? 0 : each.num_inputs));
      for (int i = 0; i < each.num_inputs; ++i) {
        contents.push_back(RandomElements(shift + bytes + 16, dtype == DType::kBool, &random_));
        if (i % 2 == 0 && IsInexact(dtype)) MakeModerate(dtype, &contents.back());
        blocks.push_back(std::make_unique<Block>(&compute_, contents.back()));
        reduction.inputs[static_cast<std::size_t>(i)] = blocks.back()->data() + shift;
      }
      for (const Bytes& content : contents) inputs.push_back(content.data() + shift);
      const Bytes untouched(shift + bytes + 16, 0xAB);
      for (int i = 0; i < each.num_outputs; ++i) {
        if (!in_place) blocks.push_back(std::make_unique<Block>(&compute_, untouched));
        const std::size_t block = first_output.back() + static_cast<std::size_t>(i);
        reduction.outputs[static_cast<std::size_t>(i)] = blocks[block]->data() + shift;
      }
      reductions.push_back(reduction);
      Bytes result(std::max<std::size_t>(bytes, 1));
      void* output = result.data();
      Reduce({dtype, op, prescale, postscale}, inputs.data(), each.num_inputs, &output, 1, each.count);
      for (int i = 0; i < each.num_outputs; ++i) {
        Bytes whole = in_place ? contents[static_cast<std::size_t>(i)] : untouched;
        std::copy_n(result.begin(), bytes, whole.begin() + static_cast<std::ptrdiff_t>(shift));
        expected.push_back(whole);
      }
    }
    const Status status = reducer_->Put(reductions, compute_.order.compute);
    EXPECT_TRUE(status.ok()) << status.message();
    std::size_t next = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (int k = 0; k < cases[i].num_outputs; ++k) {
        const Block& block = *blocks[first_output[i] + static_cast<std::size_t>(k)];
        EXPECT_EQ(block.Read(), expected[next++])
            << DTypeName(cases[i].arithmetic.dtype) << " " << ReduceOpName(cases[i].arithmetic.op) << " of "
            << cases[i].num_inputs << " inputs of " << cases[i].count << " elements, " << cases[i].shift
            << " elements off";
      }
    }
  }

  Compute compute_;
  std::unique_ptr<cuda::Reducer> reducer_;
  std::mt19937 random_{1};
};

std::vector<Arithmetic> Supported() {
  std::vector<Arithmetic> supported;
  for (const Arithmetic& each : AllArithmetic()) {
    if (cuda::Reducer::Supports(each.dtype, each.op)) supported.push_back(each);
  }
  return supported;
}

TEST_F(ReducerTest, AllTypesOpsAndFactors) {
  std::size_t salt = 0;
  for (const Arithmetic& arithmetic : Supported()) {
    std::vector<Case> cases;
    for (const int num_inputs : {2, 3, 8}) {
      ++salt;
      cases.push_back({arithmetic, num_inputs, 1 + static_cast<int>(salt % 2), 37 + salt % 5, salt % 3});
    }
    ExpectHostsBits(cases, salt % 2 == 0);
  }
}

TEST_F(ReducerTest, AllSizesAndPlaces) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUInt8}) {
    for (const std::size_t count : {0, 1, 3, 4, 1023, 4095, 4096, 4097, 9000}) {
      cases.push_back({{dtype, ReduceOp::kSum, 1.0, 1.0}, 2, 2, count, count % 5});
    }
  }
  ExpectHostsBits(cases, /*in_place=*/false);
  ExpectHostsBits(cases, /*in_place=*/true);
}

TEST_F(ReducerTest, MoreThanALaunchTakes) {
  const std::vector<Case> cases(2 * cuda::ReduceTable::kRows + 3,
                                {{DType::kFloat32, ReduceOp::kAverage, 1.0, 1.0}, 3, 1, 5, 0});
  ExpectHostsBits(cases, /*in_place=*/false);
}

TEST_F(ReducerTest, WhatItDoesNotSupport) {
  EXPECT_FALSE(cuda::Reducer::Supports(DType::kInt64, ReduceOp::kAverage));
  EXPECT_TRUE(cuda::Reducer::Supports(DType::kInt64, ReduceOp::kSum));
  EXPECT_FALSE(cuda::Reducer::Supports(DType::kComplex64, ReduceOp::kSum));
  EXPECT_FALSE(cuda::Reducer::Supports(DType::kBool, ReduceOp::kSum));
  EXPECT_TRUE(cuda::Reducer::Supports(DType::kBool, ReduceOp::kMin));
}

}  // namespace
}  // namespace tf_smddp::testing
