#include "kernels/common/integer_text.h"

#include <cerrno>
#include <cstdlib>
#include <limits>

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

}  // namespace tf_smddp
