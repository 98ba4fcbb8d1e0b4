// Shape functions of the ops in smddp_ops.cc.
#ifndef TF_SMDDP_OPS_SHAPE_FUNCTIONS_H_
#define TF_SMDDP_OPS_SHAPE_FUNCTIONS_H_

#include "tensorflow/core/framework/shape_inference.h"

namespace tf_smddp {

// Output i has the shape of input i.
absl::Status UnchangedShapes(tensorflow::shape_inference::InferenceContext* context);

// Output i has the shape of input i. There is a ticket, which is a scalar.
absl::Status SameShapes(tensorflow::shape_inference::InferenceContext* context);

// Output i has the shape of input i except for the first dimension, which is known only when the op runs.
// Inputs may not be scalars. There is a ticket, which is a scalar.
absl::Status OtherRows(tensorflow::shape_inference::InferenceContext* context);

// Output 0 has the shape of input 0 except for the first dimension. Output 1 has the shape of input 1, the
// splits, unless that is empty. There is a ticket, which is a scalar.
absl::Status AlltoallShapes(tensorflow::shape_inference::InferenceContext* context);

}  // namespace tf_smddp

#endif  // TF_SMDDP_OPS_SHAPE_FUNCTIONS_H_
