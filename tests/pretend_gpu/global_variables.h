// The global variables of a module in PTX.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_GLOBAL_VARIABLES_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_GLOBAL_VARIABLES_H_

#include <optional>
#include <string>
#include <vector>

namespace pretend_gpu {

// Returns what the variable `name` holds at first, as PTX has it: `.global .align 16 .b8 name[8] = {1, 2};`.
// Bytes that are not given are zero. Returns nullopt if there is none of that name, or if its elements are no
// bytes, as those of XLA are.
std::optional<std::vector<unsigned char>> FindGlobalVariable(const std::string& ptx, const std::string& name);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_GLOBAL_VARIABLES_H_
