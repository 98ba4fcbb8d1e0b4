// CollectiveKernel: the base class of all collectives' kernels. It fills in the requests, and tells the other
// ranks of an op that cannot be submitted.
//
// Place in the stack: under the kernels of the single collectives, which add their outputs. Not here: what
// happens to requests (submission.h).
#ifndef TF_SMDDP_KERNELS_TF_COLLECTIVE_KERNEL_H_
#define TF_SMDDP_KERNELS_TF_COLLECTIVE_KERNEL_H_

#include <string>
#include <vector>

#include "kernels/engine/request.h"
#include "kernels/tf/collective_attributes.h"
#include "kernels/tf/gpu_tensors.h"
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
  // Adds the fields that this collective needs to each of `requests`: outputs, splits. The other fields are
  // filled in already: kind, attributes, pairing, and the type, shape and memory of the input.
  // `gpu`: nullptr on the CPU.
  virtual absl::Status FillIn(tensorflow::OpKernelContext* context, GpuTensors* gpu,
                              std::vector<Request>* requests) = 0;

  // For FillIn: request i writes its result to output i, which has the shape of input i and may be its
  // buffer.
  static absl::Status ForwardOutputs(tensorflow::OpKernelContext* context, GpuTensors* gpu,
                                     std::vector<Request>* requests);

  // For FillIn: allocates output i when the number of its rows is known. `splits_output` is the output that
  // gets the number of rows from each rank; -1 for none.
  static void AllocateOutputsLater(tensorflow::OpKernelContext* context, GpuTensors* gpu,
                                   std::vector<Request>* requests, int splits_output = -1);

 private:
  absl::Status MakeRequests(tensorflow::OpKernelContext* context, StepId step, Pairing pairing,
                            const std::vector<Label>& labels, GpuTensors* gpu,
                            std::vector<Request>* requests);
  absl::Status ReadTicket(tensorflow::OpKernelContext* context, Pairing* pairing, bool* draws) const;
  absl::Status ReadFactors(tensorflow::OpKernelContext* context, double* prescale, double* postscale) const;
  absl::Status ReadLabels(tensorflow::OpKernelContext* context, std::vector<Label>* labels) const;

  CollectiveAttributes attributes_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_COLLECTIVE_KERNEL_H_
