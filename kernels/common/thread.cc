#include "kernels/common/thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <future>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/common/system_call.h"

namespace tf_smddp {
namespace {

std::string Sentence(const std::error_code& error) {
  if (CallIsRefused(error.value())) return CallFailed("clone3", error.value());
  return "a thread could not be started: " + error.message() +
         "; raise the limit of processes and threads (ulimit -u, a container's pids limit) or of address "
         "space "
         "(ulimit -v)";
}

}  // namespace

std::thread StartThread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits the mask
  std::thread thread;
  std::error_code error;
  try {
    // It names itself, since what it starts takes its name.
    thread = std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      body();
    });
  } catch (const std::system_error& refused) {
    error = refused.code();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) throw ThreadRefused(Sentence(error));
  return thread;
}

void SleepExactly() { ::prctl(PR_SET_TIMERSLACK, 1); }

Status ProbeThreads(int count) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> threads;
  Status status;
  try {
    for (int i = 0; i < count; ++i) threads.push_back(StartThread("smddp-probe", [ended] { ended.wait(); }));
  } catch (const ThreadRefused& refused) {
    status = Internal(refused.what());
  }
  end.set_value();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace tf_smddp
