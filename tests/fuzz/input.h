// Input: takes values from the bytes of a fuzzer, one behind the other. When they are
// used up it takes the last one again and again, so that short inputs make long texts, too.
#ifndef TF_SMDDP_TESTS_FUZZ_INPUT_H_
#define TF_SMDDP_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

namespace tf_smddp {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : data_(data), left_(size), last_(size > 0 ? data[size - 1] : 0) {}

  bool empty() const { return left_ == 0; }

  // Fills `bytes` bytes at `to`.
  void Fill(void* to, std::size_t bytes) {
    const std::size_t copied = std::min(bytes, left_);
    if (copied > 0) std::memcpy(to, data_, copied);
    std::memset(static_cast<std::uint8_t*>(to) + copied, last_, bytes - copied);
    data_ += copied;
    left_ -= copied;
  }

  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    Fill(static_cast<void*>(&value), sizeof value);
    return value;
  }

  // A number below `limit`, from one byte.
  unsigned Below(unsigned limit) { return Take<std::uint8_t>() % limit; }

  // A text of at most 255 bytes, which may be 0, too.
  std::string Text() {
    std::string text(Take<std::uint8_t>(), '\0');
    if (!text.empty()) Fill(text.data(), text.size());
    return text;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
  const std::uint8_t last_;
};

// Ends the process, which the fuzzer reports, unless `holds`.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_TESTS_FUZZ_INPUT_H_
