// A rank's communicator: what ncclComm_t stands for.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_COMMUNICATOR_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_COMMUNICATOR_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/pretend_gpu/extension.h"
#include "tests/pretend_gpu/handles.h"
#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/board.h"
#include "tests/pretend_gpu/nccl/outbox.h"
#include "tests/pretend_gpu/nccl/pre_mul_sum.h"

namespace pretend_gpu::nccl {

// Makes a context the thread's current one for as long as it lives.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) { cuCtxPushCurrent_v2(context); }
  ~ContextScope() {
    CUcontext ours = nullptr;
    cuCtxPopCurrent_v2(&ours);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
};

// Threads: the program's calls use it one at a time (Using finds it where they do not), but for Abort and
// AsyncError, which any thread may call; streams use what says so.
class Communicator {
 public:
  Communicator(int device, CUcontext context, bool blocking);
  ~Communicator();

  // Called once, when the rank knows where it belongs.
  void Attach(std::shared_ptr<Board> its_board, int its_rank, int its_ranks);

  // Returns "communicator 3f2a (rank 1 of 2)".
  std::string Describe() const;

  Member& member(int of) { return board->data().members[of]; }

  // Set by Attach, and constant then. Streams use them, too.
  std::shared_ptr<Board> board;
  int rank = -1;
  int ranks = 0;
  std::array<std::unique_ptr<Outbox>, kMostRanks> outboxes;  // complete when all ranks have joined

  const int device;
  const CUcontext context;
  const bool blocking;

  // The program's calls only.
  PreMulSums pre_mul_sums;
  std::map<void*, std::shared_ptr<void>> registrations;

  // Which call is to fail, counted over this communicator's: settings.h.
  bool NextCallFails();

  // Takes so much memory of the device, until Retire. Returns ncclUnhandledCudaError if it is not there.
  ncclResult_t TakeMemory(std::size_t bytes);
  void FreeMemory();
  // Takes it for sends and receives, when the first ones come. An error stays.
  ncclResult_t TakePeerMemory();

  // Waits until all that was enqueued is done.
  void Flush();
  void NoteEnqueued(WorkEnd end);

  // Ends all waits for other ranks, those of streams and that of its making, and waits until they have ended.
  void Abort();
  bool aborted() const { return aborted_; }

  // While one lives, Abort waits. On the threads that wait for other ranks.
  class Waiting {
   public:
    explicit Waiting(Communicator* communicator);
    ~Waiting();

   private:
    Communicator* const communicator_;
  };

  // A failure that was asked for (settings.h): its own error, and one for the others. Streams, too.
  void Fail();
  bool failed() const { return failed_; }

  // Makes it in a thread, if it does not block; AwaitMaker waits for the end of that thread.
  void MakeInBackground(std::function<ncclResult_t()> make);
  void AwaitMaker();

  // Has the next AsyncError do it. For communicators that do not block: in NCCL, a thread of its own does it
  // some time later.
  void Defer(std::function<void()> action);

  // Looks whether other ranks have died or failed; an error stays.
  ncclResult_t AsyncError();

  // Returns the error that is known, or success. Ends the process if it is still being made, or has a
  // deferred call.
  ncclResult_t Ready();

  // Who uses it: a call, or an open group.
  class Using;

 private:
  std::atomic<bool> aborted_{false};
  std::atomic<bool> failed_{false};
  std::atomic<ncclResult_t> made_{ncclSuccess};
  std::atomic<ncclResult_t> error_{ncclSuccess};
  std::atomic<std::uint64_t> calls_{0};
  std::thread maker_;

  bool has_peer_memory_ = false;  // the program's calls only

  std::mutex mu_;
  std::condition_variable ended_;
  int waiting_ = 0;                // guarded by mu_, as is what follows
  std::vector<WorkEnd> enqueued_;  // which may not have ended
  std::function<void()> deferred_;
  std::vector<CUdeviceptr> memory_;
  std::thread::id user_;
  int uses_ = 0;
};

// Ends the process if another thread uses the communicator at the same time.
class Communicator::Using {
 public:
  explicit Using(std::shared_ptr<Communicator> communicator);
  ~Using();
  Using(Using&& from) = default;

 private:
  std::shared_ptr<Communicator> communicator_;
};

HandleTable<Communicator>& Communicators();

inline std::shared_ptr<Communicator> CommunicatorOf(ncclComm_t handle) { return Communicators().Get(handle); }

// Returns the communicators of this process that are neither destroyed nor aborted.
std::vector<std::shared_ptr<Communicator>> AllCommunicators();
void Enlist(const std::shared_ptr<Communicator>& communicator);

// Frees its memory, takes it out of the list, and says on its board that this rank has left.
void Retire(const std::shared_ptr<Communicator>& communicator, bool aborted);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_COMMUNICATOR_H_
