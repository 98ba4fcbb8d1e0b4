// Reducer: makes many reductions within a GPU's memory in one launch of a kernel of ours.
//
// Place in the stack: above device_code.h. The results have the bits of those of kernels/reduce.
#ifndef TF_SMDDP_KERNELS_CUDA_REDUCER_H_
#define TF_SMDDP_KERNELS_CUDA_REDUCER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/common/types.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/reduce_table.h"

namespace tf_smddp::cuda {

// As Reduce (kernels/reduce/reduce.h). Each output may be one of the inputs.
struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int num_inputs = 0;
  int num_outputs = 0;
  std::array<const void*, kMostReduceInputs> inputs = {};
  std::array<void*, kMostReduceOutputs> outputs = {};
  std::uint64_t count = 0;  // of elements
};

// All methods: any thread.
class Reducer {
 public:
  // Whether it has the op for the type. It has none for complex numbers, and no average of integers of 64
  // bits, whose sums need more.
  static bool Supports(DType dtype, ReduceOp op);

  // Errors: Internal (tf_smddp was built without device code, or what the driver says).
  static Status Open(const Driver* driver, Context context, std::unique_ptr<Reducer>* opened);

  // Puts the reductions on `stream`, a stream of the context, which is current. They run beside each other,
  // so none may read what another writes. Errors: Internal, or DeviceLost, what the driver says.
  Status Put(const std::vector<Reduction>& reductions, Stream stream) const;

 private:
  Reducer() = default;

  Status PutAlike(const std::vector<Reduction>& reductions, DType dtype, Stream stream) const;

  std::unique_ptr<DeviceCode> code_;
  std::array<Function, kNumDTypes> kernels_ = {};
};

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_REDUCER_H_
