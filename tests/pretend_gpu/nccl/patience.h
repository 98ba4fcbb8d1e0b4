// The end of a rank that has waited for others for long.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_PATIENCE_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_PATIENCE_H_

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/meeting.h"

namespace pretend_gpu::nccl {

// One wait for the parties of some seats. One thread.
class Patience {
 public:
  // The seats must live as long. Without the lock of the board, as the destructor.
  Patience(Communicator& communicator, const std::vector<Seat>& seats);
  ~Patience();

  // Called from time to time, with the lock of the board. After a while it tells the ranks of this device's
  // other communicators, too, in which call this rank waits. At the time limit it ends the process.
  void Check(std::unique_lock<Board>* lock);

 private:
  void Tell(const std::string& text);
  std::string Missing();

  Communicator& communicator_;
  const std::vector<Seat>& seats_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool told_ = false;
};

// Returns what is known of a rank that others wait for, such as ", process 12, has ended". With the lock of
// its board.
std::string Condition(const Member& member);

// Returns whether a wait that began then has come to the time limit.
bool IsOverdue(std::chrono::steady_clock::time_point begin);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_PATIENCE_H_
