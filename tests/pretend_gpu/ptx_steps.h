// The effects of PTX's instructions on the registers of one thread. Here are those that kernels for
// elementwise ops consist of: none by which threads of a block talk to each other, and of half precision
// conversions alone.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_PTX_STEPS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_PTX_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/pretend_gpu/ptx_text.h"

namespace pretend_gpu {

struct PtxThread {
  std::vector<std::uint64_t> registers;
  std::size_t next = 0;  // the instruction that is done next
};

using PtxStep = std::function<void(PtxThread&)>;

// Gives registers, the addresses of parameters, and constants their places among a thread's registers.
class PtxRegisters {
 public:
  // Returns whether the operand is a register or a constant, or was placed before.
  bool CanPlace(const std::string& operand) const;

  // Returns the place of "%r1", of a parameter's address, or of a constant of this type ("42", "0f3F800000").
  std::size_t PlaceOf(const std::string& operand, const std::string& type);

  // Their content when a thread begins: the constants.
  const std::vector<std::uint64_t>& initial() const { return initial_; }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<std::uint64_t> initial_;
};

// Returns what the instruction does, or nullptr if it is not known. Jumps and `ret` are the program's
// (ptx.cc).
PtxStep MakePtxStep(const PtxInstruction& instruction, PtxRegisters& registers);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_PTX_STEPS_H_
