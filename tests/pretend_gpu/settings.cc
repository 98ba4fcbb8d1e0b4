#include "tests/pretend_gpu/settings.h"

#include <cerrno>
#include <cstdlib>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {
namespace {

std::string Text(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

long Number(const char* name, long otherwise, long least, long most) {
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

}  // namespace

const Settings& GetSettings() {
  static const Settings* settings = new Settings{
      static_cast<int>(Number("PRETEND_GPU_DEVICES", 1, 0, 16)),
      static_cast<std::size_t>(Number("PRETEND_GPU_MEMORY_MB", 2048, 1, 1 << 20)) << 20,
      Text("PRETEND_GPU_POLICY", "random"),
      static_cast<std::uint64_t>(Number("PRETEND_GPU_SEED", 1, 0, 1L << 60)),
      Number("PRETEND_GPU_DELAY_US", 300, 0, 10'000'000),
      Number("PRETEND_GPU_LAZY_US", 5000, 0, 1L << 50),
      Text("PRETEND_GPU_KERNELS", ""),
      Number("PRETEND_GPU_LOG", 0, 0, 1) != 0,
  };
  return *settings;
}

}  // namespace pretend_gpu
