// Launching kernels: the twin of that name runs on the stream.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_LAUNCH_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_LAUNCH_H_

#include <memory>
#include <string>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu {

// Enqueues the kernel: the twin of this name, or else what `ptx`, if there is such a text, says. Returns
// false if the grid or the block has a size that no device takes. Ends the process if the stream is not of
// the current context, or if there is neither. Any thread.
bool LaunchKernel(const std::string& name, Dim grid, Dim block, unsigned shared_bytes,
                  const StreamHandle& stream, void** arguments,
                  const std::shared_ptr<const std::string>& ptx = nullptr);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_LAUNCH_H_
