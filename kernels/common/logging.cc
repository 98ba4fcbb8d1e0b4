#include "kernels/common/logging.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "kernels/common/utf8.h"

namespace tf_smddp {
namespace {

// The longest wait for a reader of stderr, if stderr does not block by itself.
constexpr int kPatienceMs = 100;

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

std::string LogLine(LogLevel level, int rank, const std::string& message) {
  const std::string text = ValidUtf8(message);
  std::string line = "[tf_smddp rank " + std::to_string(rank) + " " + LevelName(level) + "] ";
  const std::size_t end = text.find_last_not_of("\r\n") + 1;
  for (std::size_t i = 0; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') {
      line += " | ";
    } else if (byte == '\t') {
      line += ' ';
    } else if (byte != '\r') {
      line += byte < ' ' || byte == 0x7f ? '?' : text[i];
    }
  }
  return line + "\n";
}

void Logger::Log(LogLevel level, const std::string& text) const {
  if (!Writes(level)) return;
  const std::string line = LogLine(level, rank_, text);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd stderr_ready = {STDERR_FILENO, POLLOUT, 0};
      if (::poll(&stderr_ready, 1, kPatienceMs) <= 0) return;  // there is no reader, and the line is lost
    } else if (errno != EINTR) {
      return;  // closed: a log line has nowhere else to go
    }
  }
}

}  // namespace tf_smddp
