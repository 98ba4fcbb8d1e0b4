// Submission: hands an op's requests to the engine, and finishes the op when all have ended.
#ifndef TF_SMDDP_KERNELS_TF_SUBMISSION_H_
#define TF_SMDDP_KERNELS_TF_SUBMISSION_H_

#include <string>
#include <vector>

#include "kernels/engine/request.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {

// Adds to `*request` what all kernels know alike: type, shape and memory of `input` and `output` (both may be
// nullptr for a collective without data), and `label`.
absl::Status DescribeTensors(const tensorflow::Tensor* input, tensorflow::Tensor* output,
                             const std::string& label, Request* request);

// Submits `requests`, whose `done` are set in here, and calls `done` when the last one has ended; the op's
// status is that of the first one that failed. Keeps the op's inputs alive until then. When TensorFlow
// cancels the step meanwhile, requests that still wait for other ranks are withdrawn.
void SubmitAsync(tensorflow::OpKernelContext* context, std::vector<Request> requests,
                 tensorflow::AsyncOpKernel::DoneCallback done);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_SUBMISSION_H_
