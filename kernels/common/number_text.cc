#include "kernels/common/number_text.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <system_error>

namespace tf_smddp {

Status ParseInteger(const std::string& name, const char* text, std::int64_t* value) {
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0) {
    return InvalidArgument(name + "='" + text + "' is not an integer");
  }
  *value = parsed;
  return {};
}

Status ParseInt(const std::string& name, const char* text, int* value) {
  std::int64_t wide = 0;
  Status status = ParseInteger(name, text, &wide);
  if (!status.ok()) return status;
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
    return InvalidArgument(name + "='" + text + "' is too large");
  }
  *value = static_cast<int>(wide);
  return {};
}

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
