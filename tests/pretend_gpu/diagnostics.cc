#include "tests/pretend_gpu/diagnostics.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/pretend_gpu/point.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {
namespace {

thread_local const char* current_call = "";
std::atomic<bool> forked{false};

// One write, so that the lines of threads and processes do not mix.
void WriteLine(const char* call, const char* format, va_list arguments, const char* end) {
  char line[4096];
  const int room = sizeof(line) - 2;
  int used = std::snprintf(line, room, "pretend GPU [%d]: %s%s", getpid(), call, *call ? ": " : "");
  used += std::vsnprintf(line + used, room - used, format, arguments);
  used = std::min(used, room - 1);
  used += std::snprintf(line + used, sizeof(line) - used, "%s\n", end);
  if (write(STDERR_FILENO, line, std::min<int>(used, sizeof(line) - 1)) < 0) return;  // nowhere to say it
}

}  // namespace

void End(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  WriteLine(current_call, format, arguments, ".");
  va_end(arguments);
  std::abort();
}

void Log(const char* format, ...) {
  if (!GetSettings().log) return;
  va_list arguments;
  va_start(arguments, format);
  WriteLine(current_call, format, arguments, "");
  va_end(arguments);
}

Call::Call(const char* name) : outermost_(*current_call == '\0') {
  if (!outermost_) return;
  current_call = name;
  if (forked) {
    End("the parent process had used the GPU before it forked, and a child cannot go on with it; use exec in "
        "the child, or fork before the first call");
  }
  if (StreamThread::Current() != nullptr) {
    End("this is a host function or callback of a stream, where CUDA forbids its calls; let the host "
        "function "
        "wake another thread, and make the call there");
  }
}

Call::~Call() {
  if (outermost_) current_call = "";
}

const char* Call::Name() { return current_call; }

void ForbidForks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = true; }); });
}

}  // namespace pretend_gpu
