// The mangled names of kernels that are templates: those of functions that are declared like the kernels.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_TENSORFLOW_KERNEL_NAME_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_TENSORFLOW_KERNEL_NAME_H_

#include <dlfcn.h>

#include "tests/pretend_gpu/pretend_gpu.h"

// Before a function that stands for a kernel. It is never called: only its name is used, so it must be
// exported, and functions of equal code must not become one.
#define PRETEND_GPU_NAME_OF_KERNEL __attribute__((visibility("default"), noinline, no_icf))

namespace pretend_gpu {

// Registers the twin of the kernel for which `function` stands.
inline void RegisterUnderNameOf(void* function, const Bind& bind) {
  Dl_info info = {};
  dladdr(function, &info);
  pretend_gpu_register_kernel(info.dli_sname, &bind);
}

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_TENSORFLOW_KERNEL_NAME_H_
