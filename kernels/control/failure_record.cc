#include "kernels/control/failure_record.h"

#include <cstring>

#include "kernels/common/utf8.h"

namespace tf_smddp {

bool FailureRecord::Knows(std::uint64_t origin) const {
  for (const auto& known : origins_) {
    if (known.load(std::memory_order_seq_cst) == origin) return true;
  }
  return false;
}

bool FailureRecord::Raise(std::uint64_t incarnation, std::uint64_t origin, const std::string& text,
                          RankId last_to_leave) {
  std::uint64_t expected = incarnation << kStateBits;
  if (!word_.compare_exchange_strong(expected, incarnation << kStateBits | kWriting,
                                     std::memory_order_seq_cst)) {
    return false;
  }
  CopyUtf8(text, text_, kTextBytes);
  last_to_leave_.store(last_to_leave.valid() ? last_to_leave.value() + 1 : 0, std::memory_order_release);
  const std::uint64_t number = num_origins_.load(std::memory_order_relaxed);
  origins_[number % kOrigins].store(origin, std::memory_order_seq_cst);
  num_origins_.store(number + 1, std::memory_order_relaxed);
  word_.store(incarnation << kStateBits | kFailed, std::memory_order_seq_cst);
  return true;
}

std::uint64_t FailureRecord::Origin() const {
  const std::uint64_t number = num_origins_.load(std::memory_order_acquire);
  return origins_[(number + kOrigins - 1) % kOrigins].load(std::memory_order_acquire);
}

FailureRecord::State FailureRecord::StateOf(std::uint64_t incarnation) const {
  const std::uint64_t word = word_.load(std::memory_order_seq_cst);
  if (word == incarnation << kStateBits) return State::kRuns;
  if (word == (incarnation << kStateBits | kWriting)) return State::kWriting;
  return word == (incarnation << kStateBits | kFailed) ? State::kFailed : State::kDamaged;
}

std::string FailureRecord::Text() const { return std::string(text_, ::strnlen(text_, kTextBytes - 1)); }

}  // namespace tf_smddp
