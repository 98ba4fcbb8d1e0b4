// A machine that has no NCCL: what is said then.
#include <string>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_library.h"

namespace tf_smddp::testing {
namespace {

TEST(NcclMissing, IsToldWithEachPlaceAndTheRemedy) {
  Status status;
  EXPECT_EQ(nullptr, nccl::Library::Open("/no/libnccl.so.2", &status));
  const std::string message = status.message();
  for (const char* part : {"NCCL cannot be opened: /no/libnccl.so.2: ", "; libnccl.so.2: ",
                           "; install it: pip install nvidia-nccl-cu12"}) {
    EXPECT_NE(std::string::npos, message.find(part)) << message;
  }
}

TEST(NcclMissing, IsToldOfTheSystemAloneIfThereIsNoPath) {
  Status status;
  EXPECT_EQ(nullptr, nccl::Library::Open("", &status));
  EXPECT_EQ(0u, status.message().find("NCCL cannot be opened: libnccl.so.2: ")) << status.message();
}

}  // namespace
}  // namespace tf_smddp::testing
