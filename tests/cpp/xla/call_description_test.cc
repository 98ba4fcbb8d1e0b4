// The description of a call in a compiled program is read as it was written, and any other text is refused.
#include "kernels/tf/xla/call_description.h"

#include <string>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

CallDescription Full() {
  CallDescription call;
  call.operation.kind = CollectiveKind::kAlltoall;
  call.communicator = 7;
  call.operation.op = ReduceOp::kProduct;
  call.operation.prescale = 1.0 / 3.0;
  call.operation.postscale = -1e300;
  call.operation.root = RankId(5);
  call.has_ticket = true;
  call.ticket_number = 1234567890123;
  call.pairing = Pairing::kOutOfBand;
  call.num_params = 9;
  call.splits = {3, 0, -1};
  call.place = 2;
  call.places = 4;
  call.tensors.resize(2);
  call.tensors[0] = {DType::kComplex128, {2, 0, 1}, std::string("3: a 'name'\n\0é ", 16), {~0u, 3, 4}, 8, {}};
  call.tensors[1] = {DType::kBool, {}, "", {}, 0, {1, 2}};
  return call;
}

TEST(CallDescription, IsReadAsItWasWritten) {
  const CallDescription call = Full();
  const std::string text = call.Serialize();
  CallDescription read;
  ASSERT_TRUE(CallDescription::Parse(text.data(), text.size(), &read));
  EXPECT_EQ(read.Serialize(), text);
  EXPECT_EQ(read.operation.prescale, call.operation.prescale);
  EXPECT_EQ(read.operation.postscale, call.operation.postscale);
  EXPECT_EQ(read.splits, call.splits);
  ASSERT_EQ(read.tensors.size(), 2);
  EXPECT_EQ(read.tensors[0].label, call.tensors[0].label);
  EXPECT_EQ(read.tensors[0].shape, call.tensors[0].shape);
  EXPECT_EQ(read.tensors[1].rows, call.tensors[1].rows);
  EXPECT_EQ(read.tensors[1].dtype, DType::kBool);
  EXPECT_EQ(read.place, 2);
  EXPECT_TRUE(read.has_ticket);
  EXPECT_EQ(read.ticket_number, 1234567890123);
}

TEST(CallDescription, WhatWasNotWrittenIsRefused) {
  const std::string text = Full().Serialize();
  CallDescription read;
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(CallDescription::Parse(text.data(), length, &read)) << length;
  }
  const std::string longer = text + "0 ";
  EXPECT_FALSE(CallDescription::Parse(longer.data(), longer.size(), &read));
  const std::string other = "999999999999 x";
  EXPECT_FALSE(CallDescription::Parse(other.data(), other.size(), &read));
}

TEST(CallDescription, TheOperandSaysHowTensorsPair) {
  const CallDescription call = Full();
  Request request = call.MakeRequest(0, 42);
  EXPECT_EQ(request.pairing.kind, Pairing::kGroup);
  EXPECT_EQ(request.pairing.ticket, 42);
  EXPECT_EQ(request.pairing.param_index, 8);
  EXPECT_EQ(request.pairing.num_params, 9);
  EXPECT_TRUE(request.pairing.name.empty());
  request = call.MakeRequest(0, -1);
  EXPECT_EQ(request.pairing.kind, Pairing::kName);
  EXPECT_EQ(request.pairing.name, call.tensors[0].label);
  CallDescription sequential = call;
  sequential.has_ticket = false;
  EXPECT_EQ(sequential.MakeRequest(1, -1).pairing.kind, Pairing::kOutOfBand);
}

}  // namespace
}  // namespace tf_smddp
