// Messages about system calls that failed.
//
// Place in the stack: the bottom.
#ifndef TF_SMDDP_KERNELS_COMMON_SYSTEM_CALL_H_
#define TF_SMDDP_KERNELS_COMMON_SYSTEM_CALL_H_

#include <string>

namespace tf_smddp {

// Tells whether a call that failed with `error` was refused by a filter (seccomp), or is unknown to the
// kernel: then it has not been tried.
bool CallIsRefused(int error);

// "socket failed: Too many open files; raise this process's limit of open files (ulimit -n)": it names the
// call, the system's error and, if it is known, the remedy. It is for calls that need no permission of their
// own.
std::string CallFailed(const std::string& call, int error);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_SYSTEM_CALL_H_
