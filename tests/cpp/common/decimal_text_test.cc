#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/common/number_text.h"
#include "tests/cpp/testing/comma_locale.h"

namespace tf_smddp {
namespace {

TEST(DecimalText, IsWhatOneWouldWrite) {
  EXPECT_EQ(DecimalText(0.25), "0.25");
  EXPECT_EQ(DecimalText(1e-7), "1e-07");
  EXPECT_EQ(DecimalText(-3.0), "-3");
  EXPECT_EQ(DecimalText(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(DecimalText(0.25, 3), "0.250");
  EXPECT_EQ(DecimalText(1.96, 1), "2.0");
  EXPECT_EQ(DecimalText(12.5, 0), "12");
  EXPECT_EQ(DecimalText(std::numeric_limits<double>::lowest(), 9).size(), 320u);
}

TEST(DecimalText, ReadsAllOrNothing) {
  double value = 0;
  EXPECT_TRUE(ParseDecimal("2.5", &value));
  EXPECT_EQ(value, 2.5);
  EXPECT_TRUE(ParseDecimal("1e-3", &value));
  EXPECT_EQ(value, 1e-3);
  for (const char* text : {"", "x", "2.5s", "2,5", " 2", "2 ", "1e999"}) {
    EXPECT_FALSE(ParseDecimal(text, &value)) << text;
  }
}

TEST(DecimalText, TheLocaleDoesNotMatter) {
  const testing::CommaLocale comma;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-300, 300);
  EXPECT_EQ(DecimalText(0.25, 2), "0.25");
  for (int i = 0; i < 1000; ++i) {
    const double value = std::pow(10.0, exponent(random));
    double read = 0;
    ASSERT_TRUE(ParseDecimal(DecimalText(value), &read)) << DecimalText(value);
    ASSERT_EQ(read, value);
  }
}

}  // namespace
}  // namespace tf_smddp
