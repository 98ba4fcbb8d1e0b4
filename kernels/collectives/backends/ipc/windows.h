// Windows: memory on a GPU that all ranks of a host with that GPU read, by CUDA's IPC handles.
//
// Place in the stack: below ipc_transfer.h. Each member of a communicator allocates a piece of the GPU's
// memory, exports it, and opens those of the others. The driver may refuse any of that: in containers that
// share no IPC namespace, say. Then all members' tensors go through the host's memory, as they do until all
// are ready.
//
// Tensors are copied into the windows. TensorFlow's own memory could be exported, too; but a rank would have
// to know when an allocation of another one is freed, and so would the driver, whose behaviour is undefined
// if it is freed before it was closed everywhere.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_WINDOWS_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_WINDOWS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/collectives/backends/ipc/board.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/status.h"
#include "kernels/cuda/copier.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/reducer.h"

namespace tf_smddp::ipc {

// A member's windows: so many *slots*, of so many bytes each.
constexpr std::uint64_t kSlots = 4;
constexpr std::uint64_t kSlotBytes = 4 << 20;

class Windows {
 public:
  // What it asks of its job.
  struct Job {
    std::function<void(const std::string& text)> log;  // a line for the user
    std::function<bool()> ended;                       // with an error
  };

  // For `member` of the board's first `num_members`; the board outlives it.
  Windows(Board* board, MemberId member, int num_members, Job job);
  // When nothing of this rank touches any windows any more. It gives the others a second to say the same;
  // memory that another process may have open is left to the end of this process.
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Whether all members reach the windows of all. If not, this does what can be done now towards it; so it
  // becomes true after a few calls on each member, unless one is refused. All members call it with the same
  // GPU. Any thread.
  bool Ready(cuda::Device* device);

  // What follows: once it was ready.
  std::byte* slots(MemberId member) const { return slots_[member.index()]; }
  const cuda::Copier& copier() const { return *copier_; }
  const cuda::Reducer& reducer() const { return *reducer_; }

 private:
  Status Export();
  Status Open(int member);
  void Refuse(const Status& why);
  void Close();
  bool AllHaveClosed() const;
  MemberEntry& own() { return board_->member(member_.value()); }

  Board* const board_;
  const MemberId member_;
  const int num_members_;
  const Job job_;

  std::atomic<bool> ready_{false};
  std::mutex mu_;  // held by the thread that works towards it; what follows is constant when it is ready
  bool refused_ = false;
  cuda::Device* device_ = nullptr;
  std::unique_ptr<cuda::Copier> copier_;
  std::unique_ptr<cuda::Reducer> reducer_;
  cuda::DeviceAddress memory_ = 0;
  std::vector<std::byte*> slots_;            // by member; nullptr before it is open
  std::vector<cuda::DeviceAddress> opened_;  // those of other processes
};

}  // namespace tf_smddp::ipc

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_WINDOWS_H_
