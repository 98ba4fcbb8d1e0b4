// StepMark: what a collective of a v1 session has instead of a ticket. It notices when its step fails without
// it.
//
// Place in the stack: between the op kernels and kernels/engine. In a session nothing tells an op that has
// run how its step went on. So a mark is a tensor with a buffer of its own: an op without inputs makes it
// when the step begins, the collective consumes it, and when the step fails before that, TensorFlow drops it.
// Then the other ranks must hear of it: they may wait for that collective, while this rank repeats the whole
// step.
#ifndef TF_SMDDP_KERNELS_TF_STEP_MARK_H_
#define TF_SMDDP_KERNELS_TF_STEP_MARK_H_

#include <memory>

#include "kernels/engine/engine.h"
#include "kernels/engine/request.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_smddp {

// The value of a ticket that pairs by name.
inline constexpr std::int64_t kByName = -1;

// A mark, with the value kByName, for one collective of the step that `context` belongs to.
tensorflow::Tensor MakeStepMark(tensorflow::OpKernelContext* context, std::shared_ptr<Engine> engine,
                                CommunicatorId communicator, StepId step);

// The collective for which `ticket` was made is submitted, or has told the engine that it won't be. Does
// nothing for a tensor that is no mark.
void UseStepMark(const tensorflow::Tensor& ticket);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_STEP_MARK_H_
