#include "kernels/control/manifest.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "kernels/control/abort_record.h"

namespace tf_smddp {
namespace {

Manifest Make(std::vector<std::int64_t> shape = {2, 3}, DType dtype = DType::kFloat32,
              ReduceOp op = ReduceOp::kSum, const std::string& label = "w") {
  return MakeManifest({CollectiveKind::kAllreduce, dtype, op}, 3, 214, shape, label);
}

TEST(Manifest, ShowsAllThatMustAgree) {
  EXPECT_EQ(DescribeManifest(Make()), "allreduce 'w' sum float32 [2, 3], parameter 3 of 214");
  EXPECT_EQ(DescribeManifest(MakeManifest(
                {CollectiveKind::kBroadcast, DType::kInt64, ReduceOp::kSum, RankId(1)}, 0, 0, {}, "")),
            "broadcast int64 [], root 1");
  EXPECT_EQ(DescribeManifest(MakeManifest({CollectiveKind::kBarrier, DType::kUInt8}, 0, 0, {0}, "b")),
            "barrier 'b'");
}

TEST(Manifest, EverythingButTheLabelMustBeEqual) {
  EXPECT_TRUE(SameManifest(Make(), Make({2, 3}, DType::kFloat32, ReduceOp::kSum, "another")));
  EXPECT_FALSE(SameManifest(Make(), Make({3, 2})));
  EXPECT_FALSE(SameManifest(Make(), Make({6})));
  EXPECT_FALSE(SameManifest(Make(), Make({2, 3}, DType::kInt32)));
  EXPECT_FALSE(SameManifest(Make(), Make({2, 3}, DType::kFloat32, ReduceOp::kMax)));
  Manifest other = Make();
  other.num_params = 215;
  EXPECT_FALSE(SameManifest(Make(), other));
}

// A manifest that differs from others made so in its meaning alone.
Manifest WithMeaning(const Meaning& meaning) {
  return MakeManifest({CollectiveKind::kAllreduce}, 1, 2, {4}, "w", meaning);
}

TEST(Manifest, TensorsOfEqualShapesThatMeanDifferentThingsDoNotMeet) {
  const Manifest plain = WithMeaning({}), a = WithMeaning({HashOfName("a")}),
                 b = WithMeaning({HashOfName("b")});
  EXPECT_TRUE(SameManifest(a, WithMeaning({HashOfName("a")})));
  EXPECT_FALSE(SameManifest(a, b));
  EXPECT_FALSE(SameManifest(a, plain));
  EXPECT_NE(DescribeCause(a, b).find("different names"), std::string::npos);

  const Manifest first = WithMeaning({0, 1, 7}), second = WithMeaning({0, 3, 9}),
                 unknown = WithMeaning({0, 1, 0});
  EXPECT_FALSE(SameManifest(first, second));
  EXPECT_FALSE(SameManifest(first, plain));
  EXPECT_NE(DescribeCause(first, second).find("number 0 and number 2"), std::string::npos);
  EXPECT_NE(DescribeCause(first, second).find("None"), std::string::npos);

  const Manifest other_variable = WithMeaning({0, 1, 8});
  EXPECT_FALSE(SameManifest(first, other_variable));
  EXPECT_NE(DescribeCause(first, other_variable).find("another order"), std::string::npos);
  EXPECT_TRUE(SameManifest(first, unknown));
  EXPECT_TRUE(SameManifest(unknown, first));
}

TEST(Manifest, NoNameHasTheHashOfNoName) {
  EXPECT_NE(HashOfName(""), 0u);
  EXPECT_NE(HashOfName("a"), HashOfName("b"));
  EXPECT_NE(HashOfName("ab"), HashOfName("ba"));
}

TEST(Manifest, TheCauseOfOtherShapesIsNotTheMeaning) {
  Manifest a = WithMeaning({HashOfName("a")}), b = WithMeaning({HashOfName("b")});
  b.count = 5;
  EXPECT_EQ(DescribeCause(a, b).find("names"), std::string::npos);
}

TEST(Manifest, FactorsCountForReductions) {
  const auto make = [](CollectiveKind kind, double prescale, double postscale) {
    return MakeManifest({kind, DType::kFloat32, ReduceOp::kSum, RankId(), prescale, postscale}, 0, 0, {4},
                        "g");
  };
  const Manifest plain = make(CollectiveKind::kReducescatter, 1.0, 1.0);
  EXPECT_TRUE(SameManifest(plain, make(CollectiveKind::kReducescatter, 1.0, 1.0)));
  EXPECT_FALSE(SameManifest(plain, make(CollectiveKind::kReducescatter, 0.5, 1.0)));
  EXPECT_FALSE(SameManifest(plain, make(CollectiveKind::kReducescatter, 1.0, 0.5)));
  EXPECT_NE(DescribeManifest(make(CollectiveKind::kAllreduce, 0.5, 0.25)).find("prescale 0.5"),
            std::string::npos);
  EXPECT_NE(DescribeManifest(make(CollectiveKind::kAllreduce, 0.5, 0.25)).find("postscale 0.25"),
            std::string::npos);
  EXPECT_TRUE(
      SameManifest(make(CollectiveKind::kBroadcast, 0.5, 1.0), make(CollectiveKind::kBroadcast, 1.0, 1.0)));
}

TEST(Manifest, TheFirstDimensionMayDifferWhereRowsMay) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kAlltoall, CollectiveKind::kAllreduce,
        CollectiveKind::kReducescatter, CollectiveKind::kBroadcast}) {
    const auto make = [kind](std::vector<std::int64_t> shape) {
      return MakeManifest({kind}, 0, 0, shape, "");
    };
    EXPECT_EQ(SameManifest(make({2, 3}), make({5, 3})), RowsMayDiffer(kind)) << CollectiveKindName(kind);
    EXPECT_EQ(SameManifest(make({0, 3}), make({5, 3})), RowsMayDiffer(kind)) << CollectiveKindName(kind);
    EXPECT_FALSE(SameManifest(make({2, 3}), make({2, 4})));
    EXPECT_FALSE(SameManifest(make({2, 3}), make({2, 3, 1})));
  }
}

TEST(Manifest, DimensionsBeyondTheShownOnesCount) {
  std::vector<std::int64_t> shape(12, 1);
  const Manifest ones = Make(shape);
  shape[10] = 2;
  shape[11] = 1;
  const Manifest first = Make(shape);
  std::swap(shape[10], shape[11]);
  EXPECT_FALSE(SameManifest(ones, first));
  EXPECT_FALSE(SameManifest(first, Make(shape)));
  EXPECT_NE(DescribeManifest(first).find("1, ...]"), std::string::npos);
}

TEST(Manifest, LongLabelsAreCutBetweenCharacters) {
  std::string label = "x";
  for (int i = 0; i < 60; ++i) label += "é";
  const std::string shown = DescribeManifest(Make({}, DType::kFloat32, ReduceOp::kSum, label));
  EXPECT_EQ(shown.substr(0, shown.find(" sum")), "allreduce '" + label.substr(0, 93) + "'");
  const std::string other = DescribeManifest(Make({}, DType::kFloat32, ReduceOp::kSum, label.substr(1)));
  EXPECT_EQ(other.substr(0, other.find(" sum")), "allreduce '" + label.substr(1, 94) + "'");
}

TEST(Manifest, DescribingDamagedBytesStaysInside) {
  Manifest damaged;
  std::memset(static_cast<void*>(&damaged), 0xff, sizeof damaged);
  EXPECT_FALSE(DescribeManifest(damaged).empty());
}

TEST(AbortRecord, TheFirstReasonWins) {
  AbortRecord record = {};
  EXPECT_FALSE(record.raised());
  EXPECT_TRUE(record.Raise("first"));
  EXPECT_FALSE(record.Raise("second"));
  EXPECT_TRUE(record.raised());
  EXPECT_EQ(record.Text(), "first");
}

TEST(AbortRecord, LongReasonsAreCut) {
  AbortRecord record = {};
  record.Raise(std::string(100000, 'x'));
  EXPECT_EQ(record.Text(), std::string(4095, 'x'));
  AbortRecord japanese = {};
  japanese.Raise(std::string(4094, 'x') + "重み");
  EXPECT_EQ(japanese.Text(), std::string(4094, 'x'));
}

}  // namespace
}  // namespace tf_smddp
