#include "kernels/common/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

std::string Encode(std::uint32_t character) {
  const auto continuation = [character](int shift) {
    return static_cast<char>(0x80 | (character >> shift & 0x3f));
  };
  if (character < 0x80) return {static_cast<char>(character)};
  if (character < 0x800) return {static_cast<char>(0xc0 | character >> 6), continuation(0)};
  if (character < 0x10000) {
    return {static_cast<char>(0xe0 | character >> 12), continuation(6), continuation(0)};
  }
  return {static_cast<char>(0xf0 | character >> 18), continuation(12), continuation(6), continuation(0)};
}

// The bytes of the character at `at`, 0 if there is none: by the table "Well-Formed UTF-8 Byte Sequences" of
// the Unicode standard.
std::size_t CharacterAt(const std::string& text, std::size_t at) {
  struct Row {
    unsigned first_low, first_high, second_low, second_high;
    std::size_t bytes;
  };
  constexpr Row kRows[] = {
      {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
      {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
      {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[at + index]); };
  for (const Row& row : kRows) {
    if (byte(0) < row.first_low || byte(0) > row.first_high || at + row.bytes > text.size()) continue;
    bool good = row.bytes == 1 || (byte(1) >= row.second_low && byte(1) <= row.second_high);
    for (std::size_t i = 2; i < row.bytes; ++i) good = good && byte(i) >= 0x80 && byte(i) <= 0xbf;
    if (good) return row.bytes;
  }
  return 0;
}

std::string Replaced(std::string text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = CharacterAt(text, at);
    if (bytes == 0) text[at] = '?';
    at += std::max<std::size_t>(bytes, 1);
  }
  return text;
}

std::size_t Cut(const std::string& text, std::size_t limit) {
  std::size_t end = 0;
  while (end < text.size() && end + CharacterAt(text, end) <= limit) end += CharacterAt(text, end);
  return end;
}

// Calls `check` with all texts of up to `length` bytes in which each byte is the first or the last of a range
// that the standard's table tells apart.
template <typename Check>
void ForEachText(std::string* text, std::size_t length, const Check& check) {
  check(*text);
  if (text->size() == length) return;
  for (const unsigned byte : {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                              0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff}) {
    text->push_back(static_cast<char>(byte));
    ForEachText(text, length, check);
    text->pop_back();
  }
}

TEST(Utf8, EveryCharacterIsKeptWholeOrNotAtAll) {
  for (std::uint32_t character = 0; character <= 0x10ffff; ++character) {
    if (character >= 0xd800 && character <= 0xdfff) continue;  // halves of pairs in UTF-16
    const std::string one = Encode(character), text = one + one;
    ASSERT_EQ(ValidUtf8(text), text) << character;
    for (std::size_t limit = 0; limit <= text.size() + 1; ++limit) {
      const std::string expected = limit < one.size() ? "" : limit < text.size() ? one : text;
      ASSERT_EQ(Utf8Prefix(text, limit), expected) << character << " cut to " << limit;
    }
  }
}

TEST(Utf8, AnyBytesBecomeValid) {
  std::string text;
  ForEachText(&text, 4, [](const std::string& bytes) { ASSERT_EQ(ValidUtf8(bytes), Replaced(bytes)); });
  EXPECT_EQ(ValidUtf8("a\xff-\xc3"), "a?-?");
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), "???") << "half of a pair in UTF-16";
}

TEST(Utf8, AnyBytesAreCut) {
  std::string text;
  ForEachText(&text, 4, [](const std::string& bytes) {
    const bool valid = Replaced(bytes) == bytes;
    for (std::size_t limit = 0; limit <= bytes.size() + 1; ++limit) {
      const std::string cut(Utf8Prefix(bytes, limit));
      ASSERT_EQ(bytes.compare(0, cut.size(), cut), 0);
      ASSERT_LE(cut.size(), limit);
      ASSERT_GE(cut.size() + 3, std::min(limit, bytes.size()));
      if (valid) {
        ASSERT_EQ(cut.size(), Cut(bytes, limit));
      }
    }
  });
}

TEST(Utf8, CopiesEndWithAZero) {
  char to[4] = {'x', 'x', 'x', 'x'};
  EXPECT_EQ(CopyUtf8("aéé", to, sizeof to), 3u);
  EXPECT_STREQ(to, "aé");
  EXPECT_EQ(CopyUtf8("aaéé", to, sizeof to), 2u);
  EXPECT_STREQ(to, "aa");
  EXPECT_EQ(CopyUtf8("é", to, 1), 0u);
  EXPECT_STREQ(to, "");
  EXPECT_EQ(CopyUtf8("", to, sizeof to), 0u);
  EXPECT_STREQ(to, "");
}

}  // namespace
}  // namespace tf_smddp
