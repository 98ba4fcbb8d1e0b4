// The making of communicators, in phases: in a group, one thread makes those of several devices, so each does
// its phase before any does the next one.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_MAKING_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_MAKING_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/pretend_gpu/nccl/communicator.h"

namespace pretend_gpu::nccl {

// One thread at a time.
class Making {
 public:
  virtual ~Making() = default;

  // Tells the parent's ranks, if there is a parent.
  virtual ncclResult_t Begin() { return ncclSuccess; }

  // Joins the new communicator.
  virtual ncclResult_t Join() = 0;

  // Waits until all its ranks have joined, and opens their outboxes.
  virtual ncclResult_t Await() = 0;

  // Waits until all its ranks have done that: who destroys its communicator closes its outbox.
  virtual ncclResult_t AwaitOthers() = 0;

  // Forgets what was made, after an error.
  virtual void Undo() = 0;
};

// The rank of a communicator that is known by its board.
class MakingByBoard : public Making {
 public:
  // `handle` is set to nullptr by Undo; nullptr if the program has the handle already.
  MakingByBoard(std::shared_ptr<Communicator> communicator, std::shared_ptr<Board> board, int rank, int ranks,
                ncclComm_t* handle);
  ncclResult_t Join() override;
  ncclResult_t Await() override;
  ncclResult_t AwaitOthers() override;
  void Undo() override;

 private:
  // Ends the process if a wait that began then is too long.
  void CheckLimit(std::chrono::steady_clock::time_point begin, std::unique_lock<Board>* lock,
                  const std::string& missing);

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Board> board_;
  const int rank_;
  const int ranks_;
  ncclComm_t* const handle_;
};

// Returns whether all ranks have seen that all have joined: nobody will look for the board any more.
bool AllAreReady(Board& board);

// Does all phases of all of them; returns the first error, after which none of them is made.
ncclResult_t Make(const std::vector<std::unique_ptr<Making>>& makings);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_MAKING_H_
