// Names what the host touched when it reads or writes what only the device may.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_FAULT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_FAULT_H_

#include <cstddef>
#include <functional>
#include <string>

#include "tests/pretend_gpu/visibility.h"

namespace pretend_gpu {

// Reserves addresses that fault when they are touched; `fd` is mapped there, or nothing if it is -1. A fault
// there ends the process with a sentence that has `describe(address)` as its subject. The range stays for
// good. Any thread; `describe` runs on the thread that faulted.
PRETEND_GPU_SHARED char* ForbiddenRange(std::size_t bytes, int fd,
                                        std::function<std::string(const void*)> describe);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_FAULT_H_
