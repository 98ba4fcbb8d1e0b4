// Request: one tensor's part in one collective, on one rank.
#ifndef TF_SMDDP_KERNELS_ENGINE_REQUEST_H_
#define TF_SMDDP_KERNELS_ENGINE_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/common/types.h"

namespace tf_smddp {

// Which request of this rank meets which of the others'.
struct Pairing {
  enum Kind {
    kGroup,     // by the group's ticket and the index in the group
    kSequence,  // the n-th such request of one rank meets the n-th of the others
    kName,      // the n-th request of this name meets the n-th of that name
  };
  Kind kind = kSequence;
  std::uint64_t ticket = 0;       // kGroup: from Engine::NextTicket
  std::uint32_t param_index = 0;  // kGroup: below num_params
  std::uint32_t num_params = 0;   // kGroup: tensors in the group
  std::string name;               // kName
};

// Called exactly once, never on the comm thread.
using DoneCallback = std::function<void(const Status&)>;

struct Request {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;                    // a rank; -1 where the collective has none
  std::vector<std::int64_t> shape;  // elements; the same on all ranks
  const void* input = nullptr;      // both may be nullptr when there are 0 elements
  void* output = nullptr;           // may be equal to `input`; must not overlap it otherwise
  Pairing pairing;
  std::string label;  // for messages; may differ between ranks
  DoneCallback done;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_REQUEST_H_
