// Which files may be the MPI library.
#include "kernels/mpi/search.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mpi/library.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::mpi {
namespace {

std::ptrdiff_t IndexOf(const std::vector<std::string>& files, const std::string& file) {
  const auto found = std::find(files.begin(), files.end(), file);
  EXPECT_NE(found, files.end()) << file;
  return found - files.begin();
}

TEST(Search, WhatTheUserNamesIsTheOnlyOne) {
  Config config;
  config.mpi_library = "/opt/mpi/lib/libmpi.so";
  EXPECT_EQ(FilesToTry(config, "/usr"), std::vector<std::string>{"/opt/mpi/lib/libmpi.so"});
}

TEST(Search, TheLaunchersKindComesFirst) {
  Config config;
  config.mpi_kind = MpiKind::kOpenMpi;
  std::vector<std::string> files = FilesToTry(config, "");
  EXPECT_LT(IndexOf(files, "libmpi.so.40"), IndexOf(files, "libmpi.so.12"));
  config.mpi_kind = MpiKind::kMpich;
  files = FilesToTry(config, "");
  EXPECT_LT(IndexOf(files, "libmpi.so.12"), IndexOf(files, "libmpich.so.12"));
  EXPECT_LT(IndexOf(files, "libmpi_abi.so.1"), IndexOf(files, "libmpi.so.40"));
}

TEST(Search, ThoseOfThePrefixComeAfterThoseOfTheSystem) {
  const testing::PrivateDirectory prefix;
  const std::string lib = prefix.path() + "/lib";
  ASSERT_EQ(::mkdir(lib.c_str(), 0700), 0);
  std::ofstream(lib + "/libmpi.so.12") << "no library";
  const std::vector<std::string> files = FilesToTry(Config(), prefix.path());
  EXPECT_LT(IndexOf(files, "libmpi.so.12"), IndexOf(files, lib + "/libmpi.so.12"));
  EXPECT_EQ(std::count(files.begin(), files.end(), lib + "/libmpi.so.40"), 0);
  Status status;
  EXPECT_EQ(Library::Open(lib + "/libmpi.so.12", &status), nullptr);
  EXPECT_NE(status.message().find(lib + "/libmpi.so.12"), std::string::npos) << status.message();
  ASSERT_EQ(::unlink((lib + "/libmpi.so.12").c_str()), 0);
  ASSERT_EQ(::rmdir(lib.c_str()), 0);
}

TEST(Search, ALibraryThatIsNoMpiIsRefused) {
  Status status;
  EXPECT_EQ(Library::Open("libc.so.6", &status), nullptr);
  EXPECT_NE(status.message().find("has no MPI_Initialized"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace tf_smddp::mpi
