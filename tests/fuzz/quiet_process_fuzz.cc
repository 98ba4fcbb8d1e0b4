// libFuzzer: a line of /proc/<pid>/task/<tid>/syscall may be anything, as kernels differ.
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/engine/quiet_process.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  const bool waits = tf_smddp::IsInFutexWait(line.c_str(), false);
  if (waits && tf_smddp::IsInFutexWait(line.c_str(), true)) __builtin_trap();  // private or shared, not both
  return 0;
}
