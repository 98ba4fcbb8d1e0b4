// The version of tf_smddp; setup.py reads it from here.
#ifndef TF_SMDDP_KERNELS_COMMON_VERSION_H_
#define TF_SMDDP_KERNELS_COMMON_VERSION_H_

namespace tf_smddp {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_VERSION_H_
