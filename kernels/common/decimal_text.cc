#include "kernels/common/decimal_text.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace tf_smddp {
namespace {

// A sign, the digits before the point, the point, and 9 digits.
constexpr std::size_t kLongest = std::numeric_limits<double>::max_exponent10 + 12;

}  // namespace

std::string DecimalText(double value) {
  char text[kLongest];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string DecimalText(double value, int digits) {
  char text[kLongest];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr};
}

bool ParseDecimal(std::string_view text, double* value) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, *value);
  return read.ec == std::errc() && read.ptr == end;
}

}  // namespace tf_smddp
