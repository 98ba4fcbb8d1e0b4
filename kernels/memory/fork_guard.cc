#include "kernels/memory/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace tf_smddp {
namespace {

struct Registry {
  std::atomic<int> depth{0};
  std::mutex mu;
  std::vector<ForkGuarded*> guarded;  // guarded by mu
};

void Before();
void AfterInParent();
void AfterInChild();

// Never destroyed, because a process may fork while it exits.
Registry& TheRegistry() {
  static Registry* registry = [] {
    ::pthread_atfork(Before, AfterInParent, AfterInChild);
    return new Registry;
  }();
  return *registry;
}

void Before() {
  TheRegistry().mu.lock();
  for (ForkGuarded* guarded : TheRegistry().guarded) guarded->BeforeFork();
}

void AfterInParent() {
  for (ForkGuarded* guarded : TheRegistry().guarded) guarded->AfterForkInParent();
  TheRegistry().mu.unlock();
}

void AfterInChild() {
  TheRegistry().depth.fetch_add(1, std::memory_order_relaxed);
  for (ForkGuarded* guarded : TheRegistry().guarded) guarded->AfterForkInChild();
  TheRegistry().mu.unlock();
}

}  // namespace

int ForkDepth() { return TheRegistry().depth.load(std::memory_order_relaxed); }

void WatchForks(ForkGuarded* guarded) {
  std::lock_guard<std::mutex> lock(TheRegistry().mu);
  TheRegistry().guarded.push_back(guarded);
}

void UnwatchForks(ForkGuarded* guarded) {
  std::lock_guard<std::mutex> lock(TheRegistry().mu);
  auto& all = TheRegistry().guarded;
  all.erase(std::remove(all.begin(), all.end(), guarded), all.end());
}

}  // namespace tf_smddp
