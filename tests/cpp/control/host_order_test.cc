#include "kernels/control/host_order.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/control/readiness_table.h"

namespace tf_smddp {
namespace {

using Messages = std::vector<RelayMessage>;

// Host 0 has ranks 0 and 2, host 1 has rank 1.
class HostOrderTest : public ::testing::Test {
 protected:
  SharedDescription Describe(const Manifest& manifest, const std::string& key = "step") {
    Description description;
    description.key_hash = 7;
    description.key = key;
    description.manifest = manifest;
    return descriptions_.Share(std::move(description));
  }

  RelayMessage Ready(std::uint64_t ticket, std::vector<int> ranks,
                     const Operation& operation = {CollectiveKind::kAllreduce},
                     std::uint64_t incarnation = 0) {
    RelayMessage message;
    message.kind = RelayMessage::kReady;
    message.ticket = ticket;
    message.incarnation = incarnation;
    message.description = Describe(MakeManifest(operation, 0, 0, {4}, "w"));
    for (const int rank : ranks) {
      RelayPart part;
      part.rank = RankId(rank);
      message.parts.push_back(part);
    }
    return message;
  }

  static RelayMessage Left(int rank) {
    RelayMessage message;
    message.kind = RelayMessage::kLeft;
    message.rank = RankId(rank);
    return message;
  }

  Messages Take(std::size_t host, const RelayMessage& message) {
    Messages out;
    order_.Take(host, message, &out);
    return out;
  }

  Descriptions descriptions_;
  HostOrder order_{{{0, 2}, {1}}};
};

TEST(DescribeDisagreement, SaysThatARankHadFewerBatchesWhereOneIsAtAGradient) {
  const auto manifest = [](CollectiveKind kind, const char* label, std::uint32_t gradient = 0) {
    Meaning meaning;
    meaning.gradient = gradient;
    return MakeManifest({kind}, 0, gradient > 0 ? 3 : 0, {4}, label, meaning);
  };
  const auto text = [](const Manifest& of_rank_0, const Manifest& of_rank_1) {
    return DescribeDisagreement("sequence", 1, 0, of_rank_0, 1, of_rank_1);
  };
  const Manifest gradient = manifest(CollectiveKind::kAllreduce, "dense/kernel", 1);
  const Manifest row = manifest(CollectiveKind::kAllgather, "table/values", 2);
  const Manifest metrics = manifest(CollectiveKind::kAllgather, "MetricAverageCallback/keys");
  const Manifest mine = manifest(CollectiveKind::kAllreduce, "mine");
  for (const Manifest& in_step : {gradient, row}) {
    for (const Manifest& outside : {metrics, mine}) {
      EXPECT_NE(text(in_step, outside).find("rank 1 had fewer batches"), std::string::npos);
      EXPECT_NE(text(outside, in_step).find("rank 0 had fewer batches"), std::string::npos);
      EXPECT_NE(text(in_step, outside).find("rank 1 has " + DescribeManifest(outside)), std::string::npos);
    }
  }
  EXPECT_EQ(text(metrics, mine).find("fewer batches"), std::string::npos);
  EXPECT_EQ(text(gradient, row).find("fewer batches"), std::string::npos);
}

TEST_F(HostOrderTest, LaunchesWhenAllHostsAreReadyInTheOrderInWhichTheyBecomeSo) {
  EXPECT_TRUE(Take(0, Ready(1, {0, 2})).empty());
  EXPECT_TRUE(Take(0, Ready(2, {0, 2})).empty());
  const Messages first = Take(1, Ready(2, {1}));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].kind, RelayMessage::kLaunch);
  EXPECT_EQ(first[0].ticket, 2u);
  EXPECT_EQ(first[0].last, RankId(1));
  ASSERT_EQ(first[0].parts.size(), 3u);
  EXPECT_EQ(first[0].parts[1].rank, RankId(1));  // in the order of the ranks
  const Messages second = Take(1, Ready(1, {1}));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].ticket, 1u);
}

RelayMessage WithNccl(RelayMessage report, std::uint32_t nccl, int rank = -1) {
  report.nccl = nccl;
  report.rank = RankId(rank);
  return report;
}

TEST_F(HostOrderTest, NcclMovesWhatAllHostsHaveKeptForOneVersion) {
  constexpr std::uint32_t kVersion = 22105;
  Take(0, WithNccl(Ready(1, {0, 2}), kVersion));
  EXPECT_EQ(Take(1, WithNccl(Ready(1, {1}), kVersion)).at(0).nccl, kVersion);
  Take(0, WithNccl(Ready(2, {0, 2}), kNotKept));
  EXPECT_EQ(Take(1, WithNccl(Ready(2, {1}), kVersion)).at(0).nccl, kNotKept);
  Take(0, WithNccl(Ready(3, {0, 2}), kVersion));
  EXPECT_EQ(Take(1, WithNccl(Ready(3, {1}), kNotKept)).at(0).nccl, kNotKept);
}

TEST_F(HostOrderTest, NamesARankBecauseOfWhichNcclIsNeverUsed) {
  constexpr std::uint32_t kVersion = 22105;
  Take(0, WithNccl(Ready(1, {0, 2}), kNoNccl, 2));
  const RelayMessage first = Take(1, WithNccl(Ready(1, {1}), kVersion)).at(0);
  EXPECT_EQ(first.nccl, kNoNccl);
  EXPECT_EQ(first.rank, RankId(2));
  Take(0, WithNccl(Ready(2, {0, 2}), kNotKept));
  const RelayMessage second = Take(1, WithNccl(Ready(2, {1}), kNoNccl, 1)).at(0);
  EXPECT_EQ(second.nccl, kNoNccl);
  EXPECT_EQ(second.rank, RankId(1));
  Take(0, WithNccl(Ready(3, {0, 2}), kVersion));
  const RelayMessage other_version = Take(1, WithNccl(Ready(3, {1}), kVersion + 1)).at(0);
  EXPECT_EQ(other_version.nccl, kNoNccl);
  EXPECT_EQ(other_version.rank, RankId(1));
}

TEST_F(HostOrderTest, NcclMovesNothingWhenARankHasLeft) {
  constexpr std::uint32_t kVersion = 22105;
  Take(0, WithNccl(Ready(1, {0, 2}), kVersion));
  const Messages out = Take(1, Left(1));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].kind, RelayMessage::kLaunch);
  EXPECT_EQ(out[1].nccl, kNotKept);
}

TEST_F(HostOrderTest, ThereIsNoResultWhereOneHostHasNoPartialOne) {
  RelayMessage of_first = Ready(1, {0, 2});
  of_first.data = {"first"};
  Take(0, of_first);
  EXPECT_TRUE(Take(1, Ready(1, {1})).at(0).data.empty());
  of_first.ticket = 2;
  Take(1, Ready(2, {1}));
  EXPECT_TRUE(Take(0, of_first).at(0).data.empty());
}

TEST_F(HostOrderTest, PartialResultsComeInTheOrderOfTheHosts) {
  RelayMessage of_first = Ready(1, {0, 2}), of_second = Ready(1, {1});
  of_first.data = {"first"};
  of_second.data = {"second"};
  EXPECT_TRUE(Take(1, of_second).empty());
  const Messages launch = Take(0, of_first);
  ASSERT_EQ(launch.size(), 1u);
  EXPECT_EQ(launch[0].data, (std::vector<std::string>{"first", "second"}));
  // A host that has no members any more has none.
  EXPECT_TRUE(Take(0, Ready(2, {0, 2})).empty());
  Take(1, Left(1));
  of_first = Ready(3, {0, 2}, {CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, RankId(0)});
  of_first.data = {"first"};
  EXPECT_EQ(Take(0, of_first).at(0).data, (std::vector<std::string>{"first"}));
}

TEST_F(HostOrderTest, HostsThatDisagreeFailTheIncarnationAndWhatElseWaitedInIt) {
  Take(0, Ready(1, {0, 2}));
  Take(0, Ready(2, {0, 2}));
  const Messages out = Take(1, Ready(1, {1}, {CollectiveKind::kBarrier}));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, RelayMessage::kFail);
  EXPECT_EQ(out[0].incarnation, 0u);
  for (const char* text : {"rank 0 has allreduce", "rank 1 has barrier"}) {
    EXPECT_NE(out[0].text.find(text), std::string::npos) << out[0].text;
  }
  // A report that was sent before the failure came is of the incarnation that ended.
  EXPECT_TRUE(Take(1, Ready(2, {1})).empty());
  EXPECT_TRUE(Take(0, Ready(3, {0, 2}, {CollectiveKind::kAllreduce}, 1)).empty());
  EXPECT_EQ(Take(1, Ready(3, {1}, {CollectiveKind::kAllreduce}, 1)).size(), 1u);
}

TEST_F(HostOrderTest, HostsWhoseTensorsMeanDifferentThingsDisagree) {
  RelayMessage named = Ready(1, {1});
  Meaning meaning;
  meaning.name = HashOfName("b");
  named.description = Describe(MakeManifest({CollectiveKind::kAllreduce}, 0, 0, {4}, "w", meaning));
  Take(0, Ready(1, {0, 2}));
  const Messages out = Take(1, named);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, RelayMessage::kFail);
  EXPECT_NE(out[0].text.find("different names"), std::string::npos) << out[0].text;
}

TEST_F(HostOrderTest, PassesOnTheFirstFailureOfAnIncarnationOnly) {
  RelayMessage failed;
  failed.kind = RelayMessage::kFailed;
  failed.origin = 5;
  failed.text = "the disk is full";
  const Messages out = Take(1, failed);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, RelayMessage::kFail);
  EXPECT_EQ(out[0].origin, 5u);
  EXPECT_EQ(out[0].text, "the disk is full");
  EXPECT_TRUE(Take(0, failed).empty());
  failed.incarnation = 1;
  EXPECT_EQ(Take(0, failed).size(), 1u);
}

TEST_F(HostOrderTest, AHostWithoutMembersIsNotWaitedFor) {
  Take(0, Ready(1, {0, 2}));
  const Messages out = Take(1, Left(1));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].kind, RelayMessage::kLeft);
  EXPECT_EQ(out[0].rank, RankId(1));
  EXPECT_EQ(out[1].kind, RelayMessage::kLaunch);
  EXPECT_EQ(Take(0, Ready(2, {0, 2})).size(), 1u);
}

TEST_F(HostOrderTest, AHostWithOneMemberLeftIsWaitedFor) {
  Take(1, Ready(1, {1}));
  EXPECT_EQ(Take(0, Left(2)).size(), 1u);
  EXPECT_EQ(Take(0, Ready(1, {0})).size(), 1u);
}

TEST_F(HostOrderTest, WhenAllHaveLeftAllReturn) {
  Take(0, Left(2));
  Take(1, Left(1));
  const Messages out = Take(0, Left(0));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].kind, RelayMessage::kFail);
  EXPECT_EQ(out[1].incarnation, 0u);
  EXPECT_EQ(out[1].rank, RankId(0));  // the last
  RelayMessage ready = Ready(1, {0, 2});
  ready.incarnation = 1;
  EXPECT_TRUE(Take(0, ready).empty());  // all are waited for again
  ready = Ready(1, {1});
  ready.incarnation = 1;
  ASSERT_EQ(Take(1, ready).size(), 1u);
}

TEST_F(HostOrderTest, HostsThatWaitForEachOtherInOnePlaceFail) {
  EXPECT_TRUE(Take(0, Ready(1, {0, 2})).empty());
  EXPECT_TRUE(Take(1, Ready(2, {1})).empty());
  const Messages out = Take(1, Ready(1 + Place::kMostGenerations, {1}));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, RelayMessage::kFail);
  for (const char* text : {"rank 1 waits with allreduce", "rank 0 with allreduce", "grouped_allreduce"}) {
    EXPECT_NE(out[0].text.find(text), std::string::npos) << out[0].text;
  }
}

// Groups have more places, since they have no order; the first tensors have the most.
TEST_F(HostOrderTest, GroupsWaitForEachOtherInOnePlaceLater) {
  const auto ready = [&](std::uint64_t ticket, int rank, std::uint32_t index) {
    RelayMessage message = Ready(ticket, {rank});
    message.description = Describe(MakeManifest({CollectiveKind::kAllreduce}, index, 200, {4}, "w"),
                                   "group/" + std::to_string(index));
    return message;
  };
  for (const std::uint32_t index : {0u, 1u, 150u}) {
    const std::uint64_t places = Place::NumOfGroups(index);
    EXPECT_EQ(places, index == 150 ? 16u : 4096u / (index + 1));
    EXPECT_TRUE(Take(0, ready(3, 0, index)).empty());
    EXPECT_TRUE(Take(1, ready(3 + places - 1, 1, index)).empty());
  }
  const Messages out = Take(1, ready(3 + Place::NumOfGroups(1), 1, 1));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, RelayMessage::kFail);
}

TEST_F(HostOrderTest, WhereAllTakePartNobodyIsNamed) {
  Take(0, Ready(1, {}));
  const RelayMessage launch = Take(1, Ready(1, {})).at(0);
  EXPECT_EQ(launch.kind, RelayMessage::kLaunch);
  EXPECT_TRUE(launch.parts.empty());
  EXPECT_EQ(launch.last, RankId(1));
  // Where one names its own, all are named.
  Take(1, Ready(2, {}));
  const std::vector<RelayPart> parts = Take(0, Ready(2, {0})).at(0).parts;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].rank, RankId(0));
  EXPECT_EQ(parts[1].rank, RankId(1));
  // A host without members is no part of it.
  Take(1, Left(1));
  const std::vector<RelayPart> of_first = Take(0, Ready(3, {})).at(0).parts;
  ASSERT_EQ(of_first.size(), 2u);
  EXPECT_EQ(of_first[1].rank, RankId(2));
}

TEST_F(HostOrderTest, DisagreementsNameRanksAlsoWhereReportsDoNot) {
  Take(1, Ready(1, {}));
  const Messages out = Take(0, Ready(1, {}, {CollectiveKind::kBarrier}));
  ASSERT_EQ(out.size(), 1u);
  for (const char* text : {"rank 0 has barrier", "rank 1 has allreduce 'w' sum float32 [4]"}) {
    EXPECT_NE(out[0].text.find(text), std::string::npos) << out[0].text;
  }
}

// Labels and numbers of variables that are not known may differ.
TEST_F(HostOrderTest, DescriptionsThatDifferInNothingThatCountsMeet) {
  Meaning meaning;
  meaning.gradient = 1;
  RelayMessage mine = Ready(1, {}), other = Ready(1, {});
  mine.description = Describe(MakeManifest({CollectiveKind::kAllreduce}, 0, 0, {4}, "w", meaning));
  meaning.variable = 5;
  other.description = Describe(MakeManifest({CollectiveKind::kAllreduce}, 0, 0, {4}, "v", meaning));
  EXPECT_NE(mine.description, other.description);
  Take(0, mine);
  EXPECT_EQ(Take(1, other).at(0).kind, RelayMessage::kLaunch);
}

TEST_F(HostOrderTest, AHostIsCountedOnce) {
  EXPECT_TRUE(Take(0, Ready(1, {})).empty());
  EXPECT_TRUE(Take(0, Ready(1, {})).empty());
  EXPECT_EQ(Take(1, Ready(1, {})).size(), 1u);
}

TEST_F(HostOrderTest, AHostWhoseMembersHaveLeftKeepsNoPlace) {
  Take(1, Ready(1, {1}));
  Take(1, Left(1));
  const Messages out = Take(0, Ready(1 + Place::kMostGenerations, {0, 2}));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, RelayMessage::kLaunch);
}

TEST_F(HostOrderTest, WhatNeedsARankThatHasLeftFails) {
  Take(0, Ready(1, {0, 2}, {CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, RankId(1)}));
  Messages out = Take(1, Left(1));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].kind, RelayMessage::kFail);
  EXPECT_NE(out[1].text.find("the root has left"), std::string::npos);
  out = Take(0, Ready(2, {0, 2}, {CollectiveKind::kAlltoall}, 1));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_NE(out[0].text.find("a rank that it needs has left"), std::string::npos);
}

// A transfer, which moves the request if a host has sent no partial result, adds in the order of the ranks.
TEST_F(HostOrderTest, WhereARankHasLeftNoReductionIsMadeOfPartialResults) {
  const auto with_data = [](RelayMessage report) {
    report.data = {"partial"};
    return report;
  };
  Take(1, with_data(Ready(1, {1})));
  EXPECT_EQ(Take(0, with_data(Ready(1, {0, 2}))).at(0).data.size(), 2u);
  Take(0, Left(2));
  Take(1, with_data(Ready(2, {1})));
  EXPECT_TRUE(Take(0, with_data(Ready(2, {0}))).at(0).data.empty());
  // Nothing is rounded in a broadcast.
  const Operation broadcast{CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, RankId(1)};
  Take(1, with_data(Ready(3, {1}, broadcast)));
  EXPECT_EQ(Take(0, with_data(Ready(3, {0}, broadcast))).at(0).data.size(), 2u);
}

}  // namespace
}  // namespace tf_smddp
