// The begin and the end of a wire over MPI.
#include "kernels/mpi/mpi_wire.h"

#include <dlfcn.h>

#include <chrono>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::mpi {
namespace {

constexpr char kLibrary[] = "tests/cpp/mpi/libpretend_mpi.so";

Status Open(std::unique_ptr<Wire>* wire) {
  Config config = testing::RankConfig(0, 1, "");
  config.mpi_library = kLibrary;
  config.bootstrap_timeout_seconds = 1;
  return MpiWire::Open("", &config, wire);
}

int* Variable(const char* name) {
  void* const library = ::dlopen(kLibrary, RTLD_NOW);
  return library == nullptr ? nullptr : static_cast<int*>(::dlsym(library, name));
}

TEST(MpiWire, ACommunicatorIsUsedAgainIfItsWireEndedInOrder) {
  int* const communicators = Variable("pretend_mpi_communicators");
  ASSERT_NE(communicators, nullptr) << ::dlerror();
  for (const bool in_order : {true, true, false, true}) {
    std::unique_ptr<Wire> wire;
    const Status status = Open(&wire);
    ASSERT_TRUE(status.ok()) << status.message();
    wire->Start([](std::uint32_t) {});
    wire->Stop(in_order);
  }
  EXPECT_EQ(*communicators, 2);  // the third one did not
  std::unique_ptr<Wire> wire;
  ASSERT_TRUE(Open(&wire).ok());
  wire.reset();  // it was not stopped
  ASSERT_TRUE(Open(&wire).ok());
  EXPECT_EQ(*communicators, 3);
}

// The last test: MPI is of no more use after it.
TEST(MpiWire, ACallThatDoesNotReturnIsAnErrorOfInit) {
  const testing::TimeLimit limit(std::chrono::seconds(30));
  int* const stuck = Variable("pretend_mpi_is_stuck");
  ASSERT_NE(stuck, nullptr) << ::dlerror();
  *stuck = 1;
  std::unique_ptr<Wire> wire;
  Status status = Open(&wire);
  EXPECT_NE(status.message().find("a call of Pretend MPI 1.0"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("has not returned in time (SMDDP_BOOTSTRAP_TIMEOUT)"), std::string::npos)
      << status.message();
  status = Open(&wire);
  *stuck = 0;  // for the end of the process
  EXPECT_NE(status.message().find("in an earlier call of tf_smddp.init()"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace tf_smddp::mpi
