#include "kernels/control/abort_record.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/common/utf8.h"

namespace tf_smddp {

bool AbortRecord::Raise(const std::string& text) {
  std::uint32_t expected = kNone;
  if (!state_.compare_exchange_strong(expected, kWriting, std::memory_order_seq_cst)) return false;
  CopyUtf8(text, text_, kTextBytes);
  state_.store(kSet, std::memory_order_seq_cst);
  return true;
}

std::string AbortRecord::Text() const {
  for (int i = 0; i < 200 && state_.load(std::memory_order_acquire) == kWriting; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (state_.load(std::memory_order_acquire) != kSet) {
    return "the job was aborted by a rank that died before it could say why; see the other ranks' output";
  }
  return std::string(text_, ::strnlen(text_, kTextBytes - 1));
}

}  // namespace tf_smddp
