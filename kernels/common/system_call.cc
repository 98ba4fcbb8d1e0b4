#include "kernels/common/system_call.h"

#include <cerrno>
#include <cstring>

namespace tf_smddp {

bool CallIsRefused(int error) {
  return error == ENOSYS || error == EPERM || error == EACCES || error == EAFNOSUPPORT;
}

std::string CallFailed(const std::string& call, int error) {
  const std::string text = call + " failed: " + std::strerror(error);
  if (error == EMFILE) return text + "; raise this process's limit of open files (ulimit -n)";
  if (error == ENFILE) return text + "; raise the system's limit of open files (sysctl fs.file-max)";
  if (CallIsRefused(error)) {
    return text + "; use a seccomp profile (container, batch system) and a kernel that allow " + call;
  }
  return text;
}

}  // namespace tf_smddp
