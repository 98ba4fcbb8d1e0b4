// Submission: hands an op's requests to the engine, and finishes the op when all have ended.
#ifndef TF_SMDDP_KERNELS_TF_SUBMISSION_H_
#define TF_SMDDP_KERNELS_TF_SUBMISSION_H_

#include <memory>
#include <vector>

#include "kernels/engine/engine.h"
#include "kernels/engine/request.h"
#include "kernels/tf/gpu_tensors.h"
#include "kernels/tf/step.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {

// Submits `requests` (at least one; all of one communicator, and of `step`), whose `done` are set in here,
// and calls `done` when the last one has ended; the op's status is that of the first one that failed. On a
// GPU, whose tensors `gpu` has (else nullptr), the results are in the device's memory then. Keeps the op's
// inputs and `gpu` alive until then. `eager`: the caller waits for `done`. When TensorFlow cancels the step
// meanwhile, requests that still wait for other ranks are withdrawn, with the error that the step failed
// with.
void SubmitAsync(tensorflow::OpKernelContext* context, std::shared_ptr<Engine> engine,
                 std::shared_ptr<Step> step, std::shared_ptr<GpuTensors> gpu, bool eager,
                 std::vector<Request> requests, tensorflow::AsyncOpKernel::DoneCallback done);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_SUBMISSION_H_
