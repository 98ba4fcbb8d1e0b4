#include "kernels/engine/core/completion_thread.h"

#include <iterator>

#include "kernels/common/thread.h"

namespace tf_smddp {

CompletionThread::CompletionThread() : thread_(StartThread("smddp-done", [this] { Run(); })) {}

CompletionThread::~CompletionThread() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CompletionThread::Push(std::vector<Completion> completions) {
  if (completions.empty()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    queue_.insert(queue_.end(), std::make_move_iterator(completions.begin()),
                  std::make_move_iterator(completions.end()));
  }
  changed_.notify_one();
}

void CompletionThread::Run() {
  for (;;) {
    std::vector<Completion> ready;
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      ready.swap(queue_);
    }
    for (Completion& completion : ready) {
      completion.first(completion.second);
      completion.first = nullptr;  // frees what the callback holds now, not after the last one
    }
  }
}

}  // namespace tf_smddp
