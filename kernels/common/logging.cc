#include "kernels/common/logging.h"

#include <unistd.h>

namespace tf_smddp {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    default:
      return "error";
  }
}

}  // namespace

void Logger::Log(LogLevel level, const std::string& text) const {
  if (level < level_) return;
  const std::string line =
      "[tf_smddp rank " + std::to_string(rank_) + " " + LevelName(level) + "] " + text + "\n";
  // A log line that cannot be written (stderr closed) has nowhere else to go.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tf_smddp
