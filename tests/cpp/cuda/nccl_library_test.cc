// NCCL is found at run time, or it is said why not.
#include "kernels/collectives/backends/nccl/nccl_library.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/nccl_ranks.h"

namespace tf_smddp::testing {
namespace {

const std::string kFolder = "tests/cpp/cuda/";

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(NcclLibrary, IsFoundBySystem) {
  Status status;
  const auto library = nccl::Library::Open("", &status);
  ASSERT_NE(nullptr, library) << status.message();
  EXPECT_EQ("2.21.5", library->version);
  EXPECT_TRUE(Has(library->path, "/cuda/libnccl.so.2")) << library->path;
}

TEST(NcclLibrary, IsFoundByPath) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/cuda/libnccl.so.2";
  Status status;
  const auto library = nccl::Library::Open(path, &status);
  ASSERT_NE(nullptr, library) << status.message();
  EXPECT_EQ(path, library->path);
}

TEST(NcclLibrary, OfTheSystemIsTakenIfThereIsNoneAtThePath) {
  Status status;
  const auto library = nccl::Library::Open("/no/libnccl.so.2", &status);
  ASSERT_NE(nullptr, library) << status.message();
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(Has(library->path, "/cuda/libnccl.so.2")) << library->path;
}

// Each file is another reason.
TEST(NcclLibrary, ThatIsTooOldIsNamedWithTheRemedy) {
  for (const auto& [file, version] :
       {std::pair("libnccl_2.13.4.so", "2.13.4"), {"libnccl_2.8.4.so", "2.8.4"}}) {
    Status status;
    EXPECT_EQ(nullptr, nccl::Library::Open(kFolder + file, &status));
    const std::string message = status.message();
    EXPECT_TRUE(Has(message, std::string("NCCL ") + version + " (")) << message;
    EXPECT_TRUE(Has(message, file)) << message;
    EXPECT_TRUE(Has(message, "is too old: communicators that do not block need 2.14.0 or later")) << message;
    EXPECT_TRUE(Has(message, "pip install --upgrade nvidia-nccl-cu12")) << message;
  }
}

TEST(NcclLibrary, ThatLacksAFunctionIsNamedWithIt) {
  Status status;
  EXPECT_EQ(nullptr, nccl::Library::Open(kFolder + "libnccl_2.14.3.so", &status));
  ExpectError(status, "has no function ncclGetErrorString; install a newer one");
}

TEST(NcclLibrary, TellsWhatNcclSaysOfAnError) {
  ExpectOk(PretendNccl().Check("ncclSend", nccl::kSuccess));
  ExpectOk(PretendNccl().Check("ncclSend", nccl::kInProgress));
  ExpectError(PretendNccl().Check("ncclSend", 2), "ncclSend failed: a call of the system failed (2)");
}

}  // namespace
}  // namespace tf_smddp::testing
