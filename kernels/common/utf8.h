// Texts that must be UTF-8: TensorFlow's Python side decodes each error, and fails on one that is not.
//
// Place in the stack: the bottom. A text with a limit is cut by Utf8Prefix or CopyUtf8, so that no character
// is cut in two. Some texts are not ours (file names, errors of other code) and may hold any bytes: ValidUtf8
// replaces what is no UTF-8 where texts leave the library (kernels/tf, the C API, log lines, the timeline).
#ifndef TF_SMDDP_KERNELS_COMMON_UTF8_H_
#define TF_SMDDP_KERNELS_COMMON_UTF8_H_

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace tf_smddp {

// The longest beginning of `text` that has at most `limit` bytes and ends with a whole character. It points
// into `text`. Takes constant time; where `text` is no UTF-8, it has between limit - 3 and `limit` bytes.
std::string_view Utf8Prefix(std::string_view text, std::size_t limit);

// `text` with a '?' in place of each byte that belongs to no character of UTF-8. The length stays the same.
std::string ValidUtf8(std::string text);

// Writes as much of `text` to `to` as there is room for, and a '\0' behind it. Returns the bytes of the text
// that was written, without the '\0'. `room` is 1 or more.
inline std::size_t CopyUtf8(std::string_view text, char* to, std::size_t room) {
  const std::string_view copied = Utf8Prefix(text, room - 1);
  if (!copied.empty()) std::memcpy(to, copied.data(), copied.size());
  to[copied.size()] = '\0';
  return copied.size();
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_UTF8_H_
