// The making of communicators that are split off another one.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SPLIT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SPLIT_H_

#include <memory>
#include <vector>

#include "tests/pretend_gpu/nccl/making.h"
#include "tests/pretend_gpu/nccl/meeting.h"

namespace pretend_gpu::nccl {

// All ranks of the parent meet, as in a collective, and tell each other their colors and keys. The first rank
// of each color has made the board of the new communicator.
class MakingBySplit : public Making {
 public:
  // `communicator` is nullptr if this rank gets none.
  MakingBySplit(std::shared_ptr<Communicator> parent, int color, int key,
                std::shared_ptr<Communicator> communicator, ncclComm_t* handle);
  ncclResult_t Begin() override;
  ncclResult_t Join() override;
  ncclResult_t Await() override;
  ncclResult_t AwaitOthers() override;
  void Undo() override;

 private:
  const std::shared_ptr<Communicator> parent_;
  const int color_;
  const int key_;
  const std::shared_ptr<Communicator> communicator_;
  ncclComm_t* const handle_;
  const std::shared_ptr<Board> board_;  // used if this rank is the first of its color
  std::vector<Seat> seats_;
  std::unique_ptr<MakingByBoard> child_;
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_SPLIT_H_
