// Logging: lines on stderr, each with its level and the rank.
//
// Place in the stack: the bottom. Each engine makes its Logger from the configured level; there is no global
// one.
#ifndef TF_SMDDP_KERNELS_COMMON_LOGGING_H_
#define TF_SMDDP_KERNELS_COMMON_LOGGING_H_

#include <string>

namespace tf_smddp {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kNone = 4 };

// Returns the line for a message, with its end: "[tf_smddp rank 1 warning] text\n". A message stays one line:
// " | " stands for each line break in it. "?" stands for other control characters, which a terminal would
// obey, and for bytes that are not UTF-8.
std::string LogLine(LogLevel level, int rank, const std::string& message);

class Logger {
 public:
  Logger(LogLevel level, int rank) : level_(level), rank_(rank) {}

  // Tells whether messages of `level` are written, so that a caller need not make one that is not. Any
  // thread.
  bool Writes(LogLevel level) const { return level >= level_; }

  // Writes LogLine if Writes(level), with one system call if the system takes all of it. Any thread.
  void Log(LogLevel level, const std::string& text) const;

 private:
  const LogLevel level_;
  const int rank_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_LOGGING_H_
