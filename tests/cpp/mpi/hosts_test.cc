// Which ranks are on which host, by what they tell each other.
#include "kernels/mpi/hosts.h"

#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp::mpi {
namespace {

// The ranks of hosts with these names, which are in the order of the ranks.
std::vector<Introduction> RanksOn(const std::vector<std::string>& names) {
  std::vector<Introduction> all;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    Introduction each;
    std::snprintf(each.host, sizeof each.host, "%s", names[rank].c_str());
    std::snprintf(each.boot, sizeof each.boot, "a boot");
    each.rank = static_cast<std::int64_t>(rank);
    for (std::size_t other = 0; other < names.size(); ++other) {
      if (names[other] != names[rank]) continue;
      each.local_rank += other < rank ? 1 : 0;
      ++each.local_size;
    }
    each.run = 100 + rank;
    all.push_back(each);
  }
  return all;
}

void ExpectError(const std::vector<Introduction>& all, const std::string& part) {
  Hosts hosts;
  const Status status = GroupByHost(all, 0, &hosts);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(Hosts, RanksAreGroupedByTheNamesOfTheirHosts) {
  Hosts hosts;
  const Status status = GroupByHost(RanksOn({"b", "a", "b", "c", "a", "b"}), 4, &hosts);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(hosts.ranks, (std::vector<std::vector<int>>{{0, 2, 5}, {1, 4}, {3}}));
  EXPECT_EQ(hosts.names, (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(hosts.run_id, "MPI run 100 host 1");
}

TEST(Hosts, EqualNamesOfDifferentMachinesAreTwoHosts) {
  std::vector<Introduction> all = RanksOn({"localhost", "localhost"});
  std::snprintf(all[1].boot, sizeof all[1].boot, "another boot");
  all[0].local_size = all[1].local_size = 1;
  all[1].local_rank = 0;
  Hosts hosts;
  ASSERT_TRUE(GroupByHost(all, 0, &hosts).ok());
  EXPECT_EQ(hosts.ranks, (std::vector<std::vector<int>>{{0}, {1}}));
}

TEST(Hosts, TheLauncherMustAgree) {
  std::vector<Introduction> all = RanksOn({"a", "a"});
  all[1].local_rank = 0;
  all[0].local_size = all[1].local_size = 1;
  ExpectError(all, "the launcher says that rank 0 on a has local rank 0 of 1, but by the names of the hosts");
}

TEST(Hosts, VersionsAndSettingsMustBeEqual) {
  std::vector<Introduction> all = RanksOn({"a", "b"});
  all[1].bucket_cap_bytes = 128;
  ExpectError(all,
              "SMDDP_BUCKET_CAP_BYTES must be equal on all ranks: rank 0 on a has 0, rank 1 on b has 128");
  std::snprintf(all[0].version, sizeof all[0].version, "0.2");
  ExpectError(all,
              "the version of tf_smddp must be equal on all ranks: rank 0 on a has 0.2, rank 1 on b has ");
}

}  // namespace
}  // namespace tf_smddp::mpi
