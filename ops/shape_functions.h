// Shape functions that several ops share. Not here: what is one op's own (smddp_ops.cc).
#ifndef TF_SMDDP_OPS_SHAPE_FUNCTIONS_H_
#define TF_SMDDP_OPS_SHAPE_FUNCTIONS_H_

#include "tensorflow/core/framework/shape_inference.h"

namespace tf_smddp {

// Output i is like input i.
absl::Status UnchangedShapes(tensorflow::shape_inference::InferenceContext* context);

// Likewise; the last input is the ticket.
absl::Status SameShapes(tensorflow::shape_inference::InferenceContext* context);

// Output i is like input i, but for its rows, which are known when all ranks have met; scalars have none. The
// last input is the ticket.
absl::Status OtherRows(tensorflow::shape_inference::InferenceContext* context);

// Output 0 is like input 0, but for its rows; output 1 is like input 1, the splits, which may be empty. The
// last input is the ticket.
absl::Status AlltoallShapes(tensorflow::shape_inference::InferenceContext* context);

}  // namespace tf_smddp

#endif  // TF_SMDDP_OPS_SHAPE_FUNCTIONS_H_
