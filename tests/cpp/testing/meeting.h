// Meeting: where ranks that are threads of one process wait for each other, apart from the engine.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_MEETING_H_
#define TF_SMDDP_TESTS_CPP_TESTING_MEETING_H_

#include <condition_variable>
#include <mutex>

namespace tf_smddp::testing {

class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}

  // Blocks until all have called it as often as the caller. Any thread.
  void Await() {
    std::unique_lock<std::mutex> lock(mu_);
    const int round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      met_.notify_all();
    }
    met_.wait(lock, [&] { return round_ != round; });
  }

 private:
  const int size_;
  std::mutex mu_;
  std::condition_variable met_;
  int arrived_ = 0;  // guarded by mu_
  int round_ = 0;    // guarded by mu_
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_MEETING_H_
