// The device code in the library, through NVIDIA's own assembler, which a driver has a copy of: each kernel
// becomes code for each generation of GPUs, and keeps its values in registers.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "gtest/gtest.h"

extern const char tf_smddp_copies_ptx[];

namespace tf_smddp::testing {
namespace {

// Pascal, Volta, Ampere, Hopper, Blackwell. `make test-all` has all that this ptxas knows.
const std::vector<int> kGenerations = {60, 70, 80, 90, 120};
const std::vector<int> kOtherGpus = {61, 62, 72, 75, 86, 87, 89, 100, 101, 103, 121};

std::vector<int> Gpus() {
  std::vector<int> gpus = kGenerations;
  if (std::getenv("TF_SMDDP_TEST_ALL") != nullptr) {
    gpus.insert(gpus.end(), kOtherGpus.begin(), kOtherGpus.end());
  }
  return gpus;
}

// Runs ptxas, and returns what it says, with its exit status as the last line.
std::string Assemble(const std::string& ptx, int gpu, const std::string& more_options = "") {
  const std::string path = ::testing::TempDir() + "kernels.ptx";
  std::ofstream(path) << ptx;
  const char* const program = std::getenv("PTXAS");
  if (program == nullptr) return "PTXAS is not set";
  const std::string command = std::string(program) + " --verbose --gpu-name=sm_" + std::to_string(gpu) + " " +
                              more_options + " --output-file=/dev/null '" + path + "' 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::string text;
  std::array<char, 4096> part;
  for (std::size_t size; (size = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), size);
  }
  const int status = ::pclose(pipe);
  return text + "exit status " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) + "\n";
}

int CountOf(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<int>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

constexpr char kAssembled[] = "Compiling entry function 'smddp_";
constexpr char kInRegisters[] = "\n +0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";

// The problems of the code; "" if there are none.
std::string ProblemsOf(const std::string& ptx, int gpu, const std::string& more_options = "") {
  const std::string said = Assemble(ptx, gpu, more_options);
  const int kernels = CountOf(ptx, "\\.entry smddp_");
  if (kernels > 0 && CountOf(said, kAssembled) == kernels && CountOf(said, kInRegisters) == kernels &&
      CountOf(said, "warning|error") == 0 && CountOf(said, "exit status 0\n$") == 1) {
    return "";
  }
  return std::to_string(kernels) + " kernels, and ptxas says for sm_" + std::to_string(gpu) + ":\n" + said;
}

class PtxasTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Gpus, PtxasTest, ::testing::ValuesIn(Gpus()),
                         [](const auto& info) { return "sm_" + std::to_string(info.param); });

TEST_P(PtxasTest, AssemblesTheCopies) { EXPECT_EQ(ProblemsOf(tf_smddp_copies_ptx, GetParam()), ""); }

// That the tests above would see what they look for.
TEST(PtxasTest, FindsAnInstructionThatIsNone) {
  const std::string ptx = std::regex_replace(std::string(tf_smddp_copies_ptx),
                                             std::regex("cvt\\.rn\\.f16\\.f32"), "cvt.rn.f17.f32");
  EXPECT_NE(ptx, tf_smddp_copies_ptx);
  EXPECT_NE(ProblemsOf(ptx, 90).find("Unknown modifier '.f17'"), std::string::npos) << ProblemsOf(ptx, 90);
}

TEST(PtxasTest, FindsValuesThatAreNotInRegisters) {
  const std::string said = ProblemsOf(tf_smddp_copies_ptx, 90, "--maxrregcount=16");
  EXPECT_GT(CountOf(said, "[1-9][0-9]* bytes spill stores"), 0) << said;
}

TEST(PtxasTest, FindsThatAKernelIsMissing) {
  EXPECT_NE(ProblemsOf(std::string(".version 8.0\n.target sm_70\n.address_size 64\n"), 90), "");
}

}  // namespace
}  // namespace tf_smddp::testing
