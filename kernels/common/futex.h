// Futexes that work across processes.
//
// Place in the stack: the bottom. libstdc++'s std::atomic::wait uses private futexes, which never see a
// wake-up from another process; these are shared ones.
#ifndef TF_SMDDP_KERNELS_COMMON_FUTEX_H_
#define TF_SMDDP_KERNELS_COMMON_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tf_smddp {

// Sleeps while *word == expected, until a wake-up or until `timeout` has passed. It may return early for no
// reason, so callers loop. Any thread.
void FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
               std::chrono::microseconds timeout);

// Wakes every thread, of any process, that sleeps on `word`. Any thread.
void FutexWakeAll(std::atomic<std::uint32_t>& word);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_FUTEX_H_
