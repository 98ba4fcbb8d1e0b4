// System calls that fail: what a person is told.
//
// Place in the stack: the bottom.
#ifndef TF_SMDDP_KERNELS_COMMON_SYSTEM_CALL_H_
#define TF_SMDDP_KERNELS_COMMON_SYSTEM_CALL_H_

#include <string>

namespace tf_smddp {

// Whether a call that failed with `error` was refused by a filter (seccomp) or is not known to the kernel,
// rather than tried.
bool CallIsRefused(int error);

// "socket failed: Too many open files; raise this process's limit of open files (ulimit -n)": the call, the
// system's error and, where it is known, the remedy. For calls that need no permission of their own.
std::string CallFailed(const std::string& call, int error);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_SYSTEM_CALL_H_
