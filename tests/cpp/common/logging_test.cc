#include "kernels/common/logging.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

// Returns the text that `body` writes to stderr, while stderr is a pipe that was opened with `flags`.
template <typename Body>
std::string Written(int flags, Body body) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, 0), 0);
  EXPECT_EQ(::fcntl(ends[1], F_SETFL, flags), 0);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  std::string text;
  std::thread reader([&] {
    char buffer[1000];
    for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
  });
  body();
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  reader.join();
  ::close(ends[0]);
  return text;
}

TEST(Logging, OneMessageIsOneLine) {
  EXPECT_EQ(LogLine(LogLevel::kWarning, 1, "text"), "[tf_smddp rank 1 warning] text\n");
  EXPECT_EQ(LogLine(LogLevel::kDebug, 12, "a\nb\r\n  c\td\n\n"), "[tf_smddp rank 12 debug] a | b |   c d\n");
  EXPECT_EQ(LogLine(LogLevel::kInfo, 0, "\x1b[31mred\x7f"), "[tf_smddp rank 0 info] ?[31mred?\n");
  EXPECT_EQ(LogLine(LogLevel::kError, 0, "größer"), "[tf_smddp rank 0 error] größer\n");
  EXPECT_EQ(LogLine(LogLevel::kError, 0,
                    "gr\xf6\xdf"
                    "er"),
            "[tf_smddp rank 0 error] gr??er\n");
  EXPECT_EQ(LogLine(LogLevel::kError, 0, ""), "[tf_smddp rank 0 error] \n");
}

TEST(Logging, LevelsBelowAreLeftOut) {
  const std::string text = Written(0, [] {
    const Logger logger(LogLevel::kWarning, 3);
    EXPECT_FALSE(logger.Writes(LogLevel::kInfo));
    EXPECT_TRUE(logger.Writes(LogLevel::kError));
    logger.Log(LogLevel::kDebug, "debug");
    logger.Log(LogLevel::kInfo, "info");
    logger.Log(LogLevel::kWarning, "warning");
    logger.Log(LogLevel::kError, "error");
    Logger(LogLevel::kNone, 3).Log(LogLevel::kError, "none");
  });
  EXPECT_EQ(text, "[tf_smddp rank 3 warning] warning\n[tf_smddp rank 3 error] error\n");
}

TEST(Logging, LongMessagesArriveWhole) {
  const std::string message(300'000, 'x');  // more than a pipe holds
  for (const int flags : {0, O_NONBLOCK}) {
    const std::string text =
        Written(flags, [&] { Logger(LogLevel::kInfo, 0).Log(LogLevel::kInfo, message); });
    EXPECT_EQ(text, "[tf_smddp rank 0 info] " + message + "\n");
  }
}

TEST(Logging, AClosedStderrIsNoError) {
  const int saved = ::dup(STDERR_FILENO);
  ::close(STDERR_FILENO);
  Logger(LogLevel::kInfo, 0).Log(LogLevel::kInfo, "nobody reads it");
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
}

}  // namespace
}  // namespace tf_smddp
