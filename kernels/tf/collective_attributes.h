// CollectiveAttributes: the attributes of a collective op, and the places of its inputs.
//
// Place in the stack: under the CPU kernels (collective_kernel.h) and the XLA kernels (xla/). Not here: the
// values of inputs (tensors, tickets, factors), which exist only when the op runs.
#ifndef TF_SMDDP_KERNELS_TF_COLLECTIVE_ATTRIBUTES_H_
#define TF_SMDDP_KERNELS_TF_COLLECTIVE_ATTRIBUTES_H_

#include <string>
#include <vector>

#include "kernels/engine/request.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {

// The name that an op has for one of its tensors.
struct Label {
  // Reads what the op was given (ops/smddp_ops.cc); `node` stands in for an empty name.
  Label(const std::string& given, const std::string& node);

  std::string text;  // for messages and for what pairs by name
  Meaning meaning;
};

struct CollectiveAttributes {
  Operation operation;  // without the dtype and the factors, which inputs have
  int tensors = 0;      // how many inputs, the first ones, are reduced or moved
  // The numbers of the inputs behind those; -1 for an input that the op does not have.
  int ticket_input = -1;
  int factors_input = -1;
  int labels_input = -1;
  bool eager = false;
  CommunicatorId communicator = kWorld;
  Pairing pairing;            // without ticket and name
  std::vector<Label> labels;  // one for each request

  // Reads those of the op that is being constructed. An op without a ticket has its place in `sequence`,
  // unless it pairs by name. Errors: InvalidArgument.
  static absl::Status Read(tensorflow::OpKernelConstruction* context, CollectiveKind kind, int tensors,
                           Pairing::Kind sequence, CollectiveAttributes* attributes);
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_COLLECTIVE_ATTRIBUTES_H_
