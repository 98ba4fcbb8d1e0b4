#include "kernels/common/config.h"

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/cpp/testing/comma_locale.h"

namespace tf_smddp {
namespace {

using Environment = std::map<std::string, std::string>;

Status Read(const Environment& environment, Config* config) {
  return ReadConfig(
      [&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      config);
}

void ExpectConfigError(const Environment& environment, const std::string& part) {
  Config config;
  const Status status = Read(environment, &config);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(part), std::string::npos)
      << "'" << status.message() << "' has no '" << part << "'";
}

TEST(Config, EmptyEnvironmentIsOneRank) {
  Config config;
  ASSERT_TRUE(Read({}, &config).ok());
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.size, 1);
  EXPECT_EQ(config.local_rank, 0);
  EXPECT_EQ(config.local_size, 1);
  EXPECT_EQ(config.bucket_cap_bytes, 25 << 20);
}

TEST(Config, ReadsEverything) {
  Config config;
  const Status status = Read({{"SMDDP_RANK", "2"},
                              {"SMDDP_SIZE", "3"},
                              {"SMDDP_LOCAL_RANK", "2"},
                              {"SMDDP_LOCAL_SIZE", "3"},
                              {"SMDDP_RENDEZVOUS", "/tmp/x"},
                              {"SMDDP_BUCKET_CAP_BYTES", "1280"},
                              {"SMDDP_SMALL_BYTES", "0"},
                              {"SMDDP_CHUNK_BYTES", "2048"},
                              {"SMDDP_TABLE_SLOTS", "64"},
                              {"SMDDP_DETERMINISTIC", "1"},
                              {"SMDDP_ARENA_BYTES", "2097152"},
                              {"SMDDP_BOOTSTRAP_TIMEOUT", "7"},
                              {"SMDDP_STALL_WARNING", "2.5"},
                              {"SMDDP_STALL_TIMEOUT", "90"},
                              {"SMDDP_LOG_LEVEL", "debug"},
                              {"SMDDP_TEST_TRANSFER_DELAY_MS", "250"},
                              {"SMDDP_TEST_OWN_GPU", "1"},
                              {"SMDDP_TEST_GROUPED_HOSTS", "3"}},
                             &config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.rank, 2);
  EXPECT_EQ(config.size, 3);
  EXPECT_EQ(config.rendezvous, "/tmp/x");
  EXPECT_EQ(config.bucket_cap_bytes, 1280);
  EXPECT_EQ(config.small_bytes, 0);
  EXPECT_EQ(config.chunk_bytes, 2048);
  EXPECT_EQ(config.table_slots, 64);
  EXPECT_TRUE(config.deterministic);
  EXPECT_EQ(config.arena_bytes, 2 << 20);
  EXPECT_EQ(config.bootstrap_timeout_seconds, 7);
  EXPECT_EQ(config.stall_warning_ms, 2500);
  EXPECT_EQ(config.stall_timeout_ms, 90'000);
  EXPECT_EQ(config.log_level, 0);
  EXPECT_EQ(config.test_transfer_delay_ms, 250);
  EXPECT_TRUE(config.test_own_gpu);
  EXPECT_EQ(config.test_grouped_hosts, 3);
}

TEST(Config, TakesWhatALauncherSays) {
  Config config;
  const Status status = Read({{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "7"},
                              {"SMDDP_TMPDIR", "/a"},
                              {"XDG_RUNTIME_DIR", "/b"},
                              {"TMPDIR", "/c"}},
                             &config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.rank, 1);
  EXPECT_EQ(config.size, 2);
  EXPECT_EQ(config.launcher, "Open MPI's mpirun");
  EXPECT_EQ(config.run_id, "PMIX_NAMESPACE=7");
  EXPECT_EQ(config.rendezvous, "");
  EXPECT_EQ(config.temporary_directory, "/a");
  EXPECT_EQ(config.user_runtime_directory, "/b");
  EXPECT_EQ(config.system_temporary_directory, "/c");
}

TEST(Config, OurRanksNeedAPlaceOrAJobId) {
  Config config;
  EXPECT_TRUE(Read({{"SMDDP_RANK", "1"}, {"SMDDP_SIZE", "2"}, {"SMDDP_JOB_ID", "x"}}, &config).ok());
  EXPECT_EQ(config.run_id, "SMDDP_JOB_ID=x");
}

TEST(Config, TheNoteIsPassedOn) {
  Config config;
  ASSERT_TRUE(Read({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, &config).ok());
  EXPECT_NE(config.note, "");
}

TEST(Config, LocalRankDefaultsToRank) {
  Config config;
  ASSERT_TRUE(Read({{"SMDDP_RANK", "1"}, {"SMDDP_SIZE", "2"}, {"SMDDP_RENDEZVOUS", "/tmp/x"}}, &config).ok());
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.local_size, 2);
}

TEST(Config, SecondsOfAStall) {
  Config config;
  ASSERT_TRUE(Read({{"SMDDP_STALL_WARNING", "0"}, {"SMDDP_STALL_TIMEOUT", "1e-5"}}, &config).ok());
  EXPECT_EQ(config.stall_warning_ms, 0);
  EXPECT_EQ(config.stall_timeout_ms, 1) << "0 would say never";
  for (const char* text : {"", "x", "5s", "-1", "nan", "inf", "1e9"}) {
    ExpectConfigError({{"SMDDP_STALL_WARNING", text}},
                      std::string("SMDDP_STALL_WARNING='") + text + "' is not a number of seconds");
    ExpectConfigError({{"SMDDP_STALL_TIMEOUT", text}}, std::string("SMDDP_STALL_TIMEOUT='") + text + "'");
  }
}

TEST(Config, WhetherNcclIsUsed) {
  Config config;
  ASSERT_TRUE(Read({}, &config).ok());
  EXPECT_TRUE(config.nccl && !config.nccl_required && !config.nccl_blocks);
  EXPECT_EQ(config.nccl_timeout_ms, 50'000);
  ASSERT_TRUE(Read({{"SMDDP_NCCL", "0"}, {"NCCL_COMM_BLOCKING", "1"}}, &config).ok());
  EXPECT_TRUE(!config.nccl && !config.nccl_required && config.nccl_blocks);
  config = Config();
  ASSERT_TRUE(Read({{"SMDDP_NCCL", "required"}, {"SMDDP_NCCL_TIMEOUT", "2.5"}}, &config).ok());
  EXPECT_TRUE(config.nccl && config.nccl_required);
  EXPECT_EQ(config.nccl_timeout_ms, 2500);
  ExpectConfigError({{"SMDDP_NCCL", "yes"}}, "SMDDP_NCCL='yes' is not one of 0, 1, required");
  ExpectConfigError({{"SMDDP_NCCL_TIMEOUT", "-1"}}, "SMDDP_NCCL_TIMEOUT='-1' is not a number of seconds");
}

TEST(Config, SecondsHaveAPointInAnyLocale) {
  const testing::CommaLocale comma;
  Config config;
  ASSERT_TRUE(Read({{"SMDDP_STALL_WARNING", "2.5"}}, &config).ok());
  EXPECT_EQ(config.stall_warning_ms, 2500);
  ExpectConfigError({{"SMDDP_STALL_WARNING", "2,5"}}, "SMDDP_STALL_WARNING='2,5' is not a number of seconds");
}

TEST(Config, ErrorsNameTheVariableAndTheValue) {
  ExpectConfigError({{"SMDDP_RANK", "one"}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK='one' is not an integer");
  ExpectConfigError({{"SMDDP_RANK", "1x"}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK='1x'");
  ExpectConfigError({{"SMDDP_RANK", ""}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK=''");
  ExpectConfigError({{"SMDDP_RANK", "99999999999"}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK='99999999999'");
  ExpectConfigError({{"SMDDP_RANK", "0"}}, "SMDDP_RANK is set but SMDDP_SIZE is not");
  ExpectConfigError({{"SMDDP_SIZE", "2"}}, "SMDDP_SIZE is set but SMDDP_RANK is not");
  ExpectConfigError({{"SMDDP_RANK", "2"}, {"SMDDP_SIZE", "2"}}, "SMDDP_RANK=2 is outside [0, 1]");
  ExpectConfigError({{"SMDDP_RANK", "0"}, {"SMDDP_SIZE", "0"}}, "SMDDP_SIZE=0");
  ExpectConfigError({{"SMDDP_RANK", "0"}, {"SMDDP_SIZE", "65"}, {"SMDDP_RENDEZVOUS", "/tmp/x"}},
                    "SMDDP_LOCAL_SIZE=65 is more than 64");
  ExpectConfigError({{"SMDDP_RANK", "0"}, {"SMDDP_SIZE", "2"}}, "SMDDP_RENDEZVOUS is not set");
  ExpectConfigError({{"SMDDP_BUCKET_CAP_BYTES", "100"}}, "SMDDP_BUCKET_CAP_BYTES=100");
  ExpectConfigError({{"SMDDP_BUCKET_CAP_BYTES", "200"}},
                    "SMDDP_BUCKET_CAP_BYTES=200 is not a multiple of 128");
  ExpectConfigError({{"SMDDP_CHUNK_BYTES", "1030"}}, "SMDDP_CHUNK_BYTES=1030 is not a multiple of 128");
  ExpectConfigError({{"SMDDP_TABLE_SLOTS", "100"}}, "SMDDP_TABLE_SLOTS=100 is not a power of two");
  ExpectConfigError({{"SMDDP_TEST_TRANSFER_DELAY_MS", "-1"}}, "SMDDP_TEST_TRANSFER_DELAY_MS=-1 is outside");
  ExpectConfigError({{"SMDDP_HOST_TIMEOUT", "2"}}, "is 2000; give 3 seconds or more, or 0 for never");
  ExpectConfigError({{"SMDDP_LOG_LEVEL", "loud"}}, "SMDDP_LOG_LEVEL='loud' is not one of debug, info");
}

}  // namespace
}  // namespace tf_smddp
