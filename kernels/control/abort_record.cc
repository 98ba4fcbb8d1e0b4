#include "kernels/control/abort_record.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace tf_smddp {

bool AbortRecord::Raise(const std::string& text) {
  std::uint32_t expected = kNone;
  if (!state_.compare_exchange_strong(expected, kWriting, std::memory_order_seq_cst)) return false;
  const std::size_t bytes = std::min(text.size(), kTextBytes - 1);
  std::memcpy(text_, text.data(), bytes);
  text_[bytes] = '\0';
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
