// XLA's builder, which has moved between the versions of TensorFlow.
#ifndef TF_SMDDP_KERNELS_TF_XLA_BUILDER_H_
#define TF_SMDDP_KERNELS_TF_XLA_BUILDER_H_

#if __has_include("xla/hlo/builder/xla_builder.h")
#include "xla/hlo/builder/xla_builder.h"
#else
#include "xla/client/xla_builder.h"
#endif

#endif  // TF_SMDDP_KERNELS_TF_XLA_BUILDER_H_
