// Logging: one line to stderr with level and rank.
//
// Place in the stack: the bottom. A Logger is made once per engine from the configured level and handed down;
// there is no global one.
#ifndef TF_SMDDP_KERNELS_COMMON_LOGGING_H_
#define TF_SMDDP_KERNELS_COMMON_LOGGING_H_

#include <string>

namespace tf_smddp {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kNone = 4 };

// The line for a message, with its end: "[tf_smddp rank 1 warning] text\n". A message stays one line: " | "
// stands for each line break in it, and "?" for other control characters, which a terminal would obey, and
// for bytes that are no UTF-8.
std::string LogLine(LogLevel level, int rank, const std::string& message);

class Logger {
 public:
  Logger(LogLevel level, int rank) : level_(level), rank_(rank) {}

  // Whether messages of `level` are written: to save the work of making one. Any thread.
  bool Writes(LogLevel level) const { return level >= level_; }

  // Writes LogLine with one write, where the system takes it in one, if Writes(level). Any thread.
  void Log(LogLevel level, const std::string& text) const;

 private:
  const LogLevel level_;
  const int rank_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_LOGGING_H_
