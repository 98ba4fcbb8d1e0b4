// Kernels that come as PTX, such as those that TensorFlow compiles at run time: they run as what they are.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_PTX_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_PTX_H_

#include <memory>
#include <string>

#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu {

// Returns a twin that does what the PTX says, or nullptr if `text` has no kernel of this name. Ends the
// process if the kernel has an instruction that is not known (ptx_steps.h). Any thread.
std::shared_ptr<const Bind> TwinOfPtx(const std::string& text, const std::string& name);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_PTX_H_
