// Sums of what each rank has multiplied by a scalar of its own.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_PRE_MUL_SUM_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_PRE_MUL_SUM_H_

#include <map>

#include "tests/pretend_gpu/nccl/reduce.h"

namespace pretend_gpu::nccl {

// The arguments of ncclRedOpCreatePreMulSum.
struct PreMulSum {
  int type;
  Scalar scalar;          // if it is the host's
  const void* on_device;  // else where a stream finds it when it gets there
};

// Those of a communicator, by their ncclRedOp_t. Handles are not used again. One thread at a time.
class PreMulSums {
 public:
  int Add(const PreMulSum& made) {
    made_[next_] = made;
    return next_++;
  }

  // Returns nullptr if there is none.
  const PreMulSum* Find(int op) const {
    const auto found = made_.find(op);
    return found == made_.end() ? nullptr : &found->second;
  }

  bool Remove(int op) { return made_.erase(op) != 0; }

 private:
  int next_ = 100;
  std::map<int, PreMulSum> made_;
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_PRE_MUL_SUM_H_
