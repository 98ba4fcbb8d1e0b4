#include "kernels/common/utf8.h"

#include <cstdint>

namespace tf_smddp {
namespace {

std::uint32_t ByteAt(std::string_view text, std::size_t index) {
  return static_cast<unsigned char>(text[index]);
}

bool Continues(std::uint32_t byte) { return byte >> 6 == 0b10; }

// The bytes of the character that begins with `byte`; 0 for a byte that begins none.
std::size_t BytesOfCharacter(std::uint32_t byte) {
  if (byte >> 7 == 0) return 1;
  if (byte >> 5 == 0b110) return 2;
  if (byte >> 4 == 0b1110) return 3;
  return byte >> 3 == 0b11110 ? 4 : 0;
}

// The bytes of the character at the beginning of `text`, which is not empty; 0 where none begins.
std::size_t LeadingCharacter(std::string_view text) {
  // The first character that needs 1, 2, 3 or 4 bytes; longer forms of a character are not allowed.
  constexpr std::uint32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  const std::uint32_t first = ByteAt(text, 0);
  const std::size_t bytes = BytesOfCharacter(first);
  if (bytes <= 1) return bytes;
  if (bytes > text.size()) return 0;
  std::uint32_t character = first & ((1u << (7 - bytes)) - 1);
  for (std::size_t i = 1; i < bytes; ++i) {
    const std::uint32_t byte = ByteAt(text, i);
    if (!Continues(byte)) return 0;
    character = character << 6 | (byte & 0x3f);
  }
  const bool surrogate = character >> 11 == 0xd800 >> 11;
  return character >= kFirst[bytes] && character <= 0x10ffff && !surrogate ? bytes : 0;
}

}  // namespace

std::string_view Utf8Prefix(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t begin = limit;  // of the character that the byte at `limit` belongs to
  while (begin > 0 && limit - begin < 3 && Continues(ByteAt(text, begin))) --begin;
  const bool divided = begin + BytesOfCharacter(ByteAt(text, begin)) > limit;
  return text.substr(0, divided ? begin : limit);
}

std::string ValidUtf8(std::string text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = LeadingCharacter(std::string_view(text).substr(at));
    if (bytes == 0) text[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
  return text;
}

}  // namespace tf_smddp
