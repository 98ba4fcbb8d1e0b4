#include "benchmarks/cpp/fork_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace tf_smddp::benchmarks {

int ForkRanks(const char* program, const Options& options, const std::function<void(int rank)>& rank) {
  std::vector<pid_t> processes;
  for (int number = 0; number < options.ranks; ++number) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(static_cast<unsigned>(options.time_limit_seconds));
      try {
        rank(number);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s, rank %d: %s\n", program, number, error.what());
        std::exit(1);
      }
      std::exit(0);
    }
    if (pid < 0) {
      std::perror(program);
      for (const pid_t process : processes) ::kill(process, SIGTERM);
      return 1;
    }
    processes.push_back(pid);
  }
  bool failed = false;
  for (std::size_t ended = 0; ended < processes.size(); ++ended) {
    int status = 0;
    const pid_t pid = ::wait(&status);
    if (failed || status == 0) continue;
    failed = true;
    std::fprintf(stderr, "%s: process %d ended with status %d\n", program, static_cast<int>(pid), status);
    for (const pid_t process : processes) {
      if (process != pid) ::kill(process, SIGTERM);
    }
  }
  return failed ? 1 : 0;
}

}  // namespace tf_smddp::benchmarks
