// Logging: one line to stderr with level and rank.
//
// Place in the stack: the bottom. A Logger is made once per engine from the configured level and handed down;
// there is no global one.
#ifndef TF_SMDDP_KERNELS_COMMON_LOGGING_H_
#define TF_SMDDP_KERNELS_COMMON_LOGGING_H_

#include <string>

namespace tf_smddp {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kNone = 4 };

class Logger {
 public:
  Logger(LogLevel level, int rank) : level_(level), rank_(rank) {}

  // Writes "[tf_smddp rank 1 warning] text\n" with one write, when `level` is at least the configured one.
  // Any thread.
  void Log(LogLevel level, const std::string& text) const;

 private:
  const LogLevel level_;
  const int rank_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_LOGGING_H_
