// Which tasks that are still queued use a piece of memory, so that freeing it too early is found.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_USES_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_USES_H_

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace pretend_gpu {

// The queued tasks of one allocation. Any thread.
class Uses {
 public:
  // Returns one of the queued tasks, as "cuMemsetD8Async on stream 3", or "" if there is none.
  std::string First() {
    std::lock_guard<std::mutex> lock(mu_);
    return tasks_.empty() ? "" : tasks_.front();
  }

 private:
  friend class Use;
  std::mutex mu_;
  std::list<std::string> tasks_;  // guarded by mu_
};

// One task's use of an allocation: from when the task is enqueued until it is done.
class Use {
 public:
  Use(std::shared_ptr<Uses> uses, std::string task) : uses_(std::move(uses)) {
    std::lock_guard<std::mutex> lock(uses_->mu_);
    at_ = uses_->tasks_.insert(uses_->tasks_.end(), std::move(task));
  }
  ~Use() {
    if (uses_ == nullptr) return;
    std::lock_guard<std::mutex> lock(uses_->mu_);
    uses_->tasks_.erase(at_);
  }
  Use(Use&&) = default;
  Use& operator=(Use&&) = delete;

 private:
  std::shared_ptr<Uses> uses_;
  std::list<std::string>::iterator at_;
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_USES_H_
