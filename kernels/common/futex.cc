#include "kernels/common/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tf_smddp {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
              "the kernel works on the bare 32-bit word");

void FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
               std::chrono::microseconds timeout) {
  timespec relative;
  relative.tv_sec = static_cast<time_t>(timeout.count() / 1'000'000);
  relative.tv_nsec = static_cast<long>(timeout.count() % 1'000'000) * 1000;
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void FutexWakeAll(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tf_smddp
