#include "kernels/process/interrupt.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/common/thread.h"
#include "kernels/process/global_engine.h"

namespace tf_smddp {
namespace {

// The state that the handler reads. It is a plain global, since a handler must not run into an initialisation
// on first use.
struct Shared {
  // No descriptor, which the script could close, and so keep the thread asleep for ever.
  sem_t woken;
  std::once_flag made;
  std::atomic<pid_t> pid{0};
  struct sigaction before;
};
Shared shared;

struct Watching {
  std::mutex mu;
  std::atomic<bool> stopping{false};
  std::thread thread;  // guarded by mu
};

// Never destroyed: a thread that runs at exit must not be terminated with an error.
Watching& TheWatching() {
  static Watching* watching = new Watching;
  return *watching;
}

// Async-signal-safe.
void Wake() { ::sem_post(&shared.woken); }

void TakeWakes() {
  while (::sem_trywait(&shared.woken) == 0) {
  }
}

void OnInterrupt(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // A forked child has the handler and the descriptor, but the collectives are the parent's.
  if (::getpid() == shared.pid.load()) Wake();
  errno = saved_errno;
  if ((shared.before.sa_flags & SA_SIGINFO) != 0) {
    shared.before.sa_sigaction(signal, info, context);
  } else if (shared.before.sa_handler != SIG_DFL && shared.before.sa_handler != SIG_IGN) {
    shared.before.sa_handler(signal);
  }
}

void Run() {
  for (;;) {
    if (::sem_wait(&shared.woken) != 0) continue;  // a signal
    TakeWakes();
    if (TheWatching().stopping.load()) return;
    if (const std::shared_ptr<Engine> engine = GlobalEngine()) {
      engine->CancelAll("rank " + std::to_string(engine->config().rank) + " was interrupted (SIGINT)");
    }
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == OnInterrupt;
}

}  // namespace

Status WatchInterrupts() {
  Watching& watching = TheWatching();
  std::lock_guard<std::mutex> lock(watching.mu);
  if (watching.thread.joinable()) return {};
  std::call_once(shared.made, [] { ::sem_init(&shared.woken, /*pshared=*/0, 0); });
  TakeWakes();  // of the last time
  watching.stopping.store(false);
  try {
    watching.thread = StartThread("smddp-interrupt", Run);
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  shared.pid.store(::getpid());
  struct sigaction ours = {};
  // This comes before our handler is in place, which may be called at once.
  ::sigaction(SIGINT, nullptr, &shared.before);
  ours.sa_sigaction = OnInterrupt;
  ours.sa_mask = shared.before.sa_mask;
  ours.sa_flags = (shared.before.sa_flags & SA_ONSTACK) | SA_SIGINFO;
  ::sigaction(SIGINT, &ours, nullptr);
  return {};
}

void StopWatchingInterrupts() {
  Watching& watching = TheWatching();
  if (::getpid() != shared.pid.load()) return;
  std::lock_guard<std::mutex> lock(watching.mu);
  if (!watching.thread.joinable()) return;
  struct sigaction current;
  ::sigaction(SIGINT, nullptr, &current);
  if (IsOurs(current)) ::sigaction(SIGINT, &shared.before, nullptr);
  watching.stopping.store(true);
  Wake();
  watching.thread.join();
}

}  // namespace tf_smddp
