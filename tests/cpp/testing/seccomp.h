// A process that refuses itself system calls, as a container's or a batch system's profile does.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_SECCOMP_H_
#define TF_SMDDP_TESTS_CPP_TESTING_SECCOMP_H_

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

namespace tf_smddp::testing {

struct RefusedCall {
  long number = 0;  // SYS_…
  int error = 0;    // what it fails with
  // Restricts the refusal to calls with (argument & mask) == value, for an argument from 0 to 5.
  int argument = -1;
  std::uint32_t mask = 0, value = 0;
};

// Installs a filter that takes `action` for `calls`. Returns the listener of SECCOMP_RET_USER_NOTIF, 0 for
// another action, or -1 if the system has no seccomp.
inline int InstallFilter(const std::vector<RefusedCall>& calls, std::uint32_t action) {
#if defined(__x86_64__)
  constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif
  const auto load = [](std::size_t offset) -> sock_filter {
    return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)};
  };
  const auto give = [](std::uint32_t action) -> sock_filter { return {BPF_RET | BPF_K, 0, 0, action}; };
  // A jump goes over so many instructions when equal, or when not.
  const auto jump = [](std::uint32_t value, std::uint8_t equal, std::uint8_t different) -> sock_filter {
    return {BPF_JMP | BPF_JEQ | BPF_K, equal, different, value};
  };
  std::vector<sock_filter> program = {load(offsetof(seccomp_data, arch)), jump(kArchitecture, 1, 0),
                                      give(SECCOMP_RET_ALLOW)};
  for (const RefusedCall& call : calls) {
    const sock_filter refuse =
        give(action == SECCOMP_RET_ERRNO ? action | static_cast<std::uint32_t>(call.error) : action);
    program.push_back(load(offsetof(seccomp_data, nr)));
    if (call.argument < 0) {
      program.push_back(jump(static_cast<std::uint32_t>(call.number), 0, 1));
    } else {
      program.push_back(jump(static_cast<std::uint32_t>(call.number), 0, 4));
      // The low half of the argument; both architectures are little-endian.
      program.push_back(load(offsetof(seccomp_data, args) +
                             sizeof(std::uint64_t) * static_cast<std::size_t>(call.argument)));
      program.push_back({BPF_ALU | BPF_AND | BPF_K, 0, 0, call.mask});
      program.push_back(jump(call.value, 0, 1));
    }
    program.push_back(refuse);
  }
  program.push_back(give(SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  const unsigned flags = action == SECCOMP_RET_USER_NOTIF ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;
  return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter));
}

// Makes `calls` fail in the calling thread, and in all threads and processes that it starts later. This
// cannot be undone, so it is for forked children. Returns false if the system has no seccomp.
inline bool RefuseCalls(const std::vector<RefusedCall>& calls) {
  return InstallFilter(calls, SECCOMP_RET_ERRNO) >= 0;
}

// As above, but makes only the `n`-th of these calls fail, counted from 1. A thread of this process, which is
// not restricted, answers each of them. The errors must be equal.
inline bool RefuseNthCall(const std::vector<RefusedCall>& calls, int n) {
  std::promise<int> listener;
  std::thread([n, error = calls[0].error, listening = listener.get_future()]() mutable {
    const int fd = listening.get();
    for (int count = 1;; ++count) {
      seccomp_notif call = {};
      if (::ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;
      seccomp_notif_resp answer = {};
      answer.id = call.id;
      if (count == n) {
        answer.error = -error;
      } else {
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      }
      ::ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }).detach();
  const int fd = InstallFilter(calls, SECCOMP_RET_USER_NOTIF);
  listener.set_value(fd);
  return fd >= 0;
}

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_SECCOMP_H_
