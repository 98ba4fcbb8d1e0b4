// The text of PTX, NVIDIA's assembly language, taken apart. Its meaning is in ptx_steps.h.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_PTX_TEXT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_PTX_TEXT_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pretend_gpu {

struct PtxInstruction {
  std::string guard;  // "%p1": it is done only where this is true; "" if always
  bool negated = false;
  std::vector<std::string> name;      // "ld", "global", "v4", "f32"
  std::vector<std::string> operands;  // "%r1", "[%rd2+4]", "{%f1, %f2}"

  // Returns it as it is written, for sentences.
  std::string Describe() const;
};

struct PtxParameter {
  std::string name;
  std::size_t bytes;
};

struct PtxKernel {
  std::vector<PtxParameter> parameters;
  std::vector<PtxInstruction> instructions;
  std::map<std::string, std::size_t> labels;  // the instruction that follows each
};

// Returns whether the image of a module is PTX. Any thread.
bool IsPtx(const void* image);

// Returns the kernel of this name, if the text has it. Any thread.
std::optional<PtxKernel> FindPtxKernel(const std::string& text, const std::string& name);

// Splits at commas that are not in brackets, and removes the space around the pieces. Any thread.
std::vector<std::string> SplitOperands(const std::string& text);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_PTX_TEXT_H_
