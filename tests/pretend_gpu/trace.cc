#include "tests/pretend_gpu/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {

std::int64_t TraceClock() {
  using std::chrono::duration_cast;
  using std::chrono::microseconds;
  return duration_cast<microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void TraceTask(const std::string& role, int device, const TaskTimes& times) {
  const std::string& path = GetSettings().trace;
  if (path.empty()) return;
  static const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line = std::to_string(getpid()) + '\t' + std::to_string(device) + '\t' + role + '\t' +
                           times.call + '\t' + std::to_string(times.queued_us) + '\t' +
                           std::to_string(times.begin_us) + '\t' + std::to_string(TraceClock()) + '\n';
  // One write, so that the lines of threads and processes do not mix.
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    End("the trace %s cannot be written", path.c_str());
  }
}

}  // namespace pretend_gpu
