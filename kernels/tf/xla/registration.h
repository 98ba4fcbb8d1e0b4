// Registers a kernel for the devices for which TensorFlow has XLA compile a function. They have the same
// kernels: CPUs and GPUs differ in what their programs call (cpu_calls.cc, gpu_calls.cc).
//
// Not with REGISTER_XLA_OP, which fails when any op has run before this library is loaded.
#ifndef TF_SMDDP_KERNELS_TF_XLA_REGISTRATION_H_
#define TF_SMDDP_KERNELS_TF_XLA_REGISTRATION_H_

#include "tensorflow/core/framework/op_kernel.h"

// TF_SMDDP_REGISTER_XLA("SmddpAllreduce", AllreduceXlaKernel);
#define TF_SMDDP_REGISTER_XLA(op, Kernel)                          \
  REGISTER_KERNEL_BUILDER(Name(op).Device("XLA_CPU_JIT"), Kernel); \
  REGISTER_KERNEL_BUILDER(Name(op).Device("XLA_GPU_JIT"), Kernel)

#endif  // TF_SMDDP_KERNELS_TF_XLA_REGISTRATION_H_
