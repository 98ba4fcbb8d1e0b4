#include "tests/pretend_gpu/environment.h"

#include <cerrno>
#include <cstdlib>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {

std::string TextVariable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

long NumberVariable(const char* name, long otherwise, long least, long most) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(value, &end, 10);
  if (*end != '\0' || errno != 0 || number < least || number > most) {
    End("%s is '%s', and must be a whole number from %ld to %ld", name, value, least, most);
  }
  return number;
}

}  // namespace pretend_gpu
