// CollectiveKernel: what the kernels of all collectives share: how a request is filled in, and how an op that
// cannot be submitted lets the other ranks know.
//
// Place in the stack: under the kernels of the single collectives, which add their tensors. Not here: what
// happens to requests (submission.h).
#ifndef TF_SMDDP_KERNELS_TF_COLLECTIVE_KERNEL_H_
#define TF_SMDDP_KERNELS_TF_COLLECTIVE_KERNEL_H_

#include <string>
#include <vector>

#include "kernels/engine/request.h"
#include "kernels/tf/collective_attributes.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {

class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  // `tensors`: how many inputs, the first ones, are reduced or moved. An op without a ticket has its place in
  // `sequence`, unless it pairs by name.
  CollectiveKernel(tensorflow::OpKernelConstruction* context, CollectiveKind kind, int tensors,
                   Pairing::Kind sequence = Pairing::kSequence);

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  // Adds to each of `requests` what is the collective's own: outputs, root, splits. The rest is there: kind,
  // attributes, pairing, and of its input the type, shape and memory.
  virtual absl::Status FillIn(tensorflow::OpKernelContext* context, std::vector<Request>* requests) = 0;

  // For FillIn: each request writes its result to the output of its number, which is like the input of that
  // number and may be it.
  static absl::Status ForwardOutputs(tensorflow::OpKernelContext* context, std::vector<Request>* requests);

  // For FillIn: each request's output is made when its rows are known. `splits_output`: gets the rows from
  // each rank; -1 for none.
  static void AllocateOutputsLater(tensorflow::OpKernelContext* context, std::vector<Request>* requests,
                                   int splits_output = -1);

 private:
  absl::Status MakeRequests(tensorflow::OpKernelContext* context, StepId step,
                            const std::vector<std::string>& labels, std::vector<Request>* requests);
  absl::Status ReadTicket(tensorflow::OpKernelContext* context, Pairing* pairing) const;
  absl::Status ReadFactors(tensorflow::OpKernelContext* context, double* prescale, double* postscale) const;
  absl::Status ReadLabels(tensorflow::OpKernelContext* context, std::vector<std::string>* labels) const;

  CollectiveAttributes attributes_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_COLLECTIVE_KERNEL_H_
