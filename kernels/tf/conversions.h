// Converts types, shapes and errors between TensorFlow's classes and ours.
#ifndef TF_SMDDP_KERNELS_TF_CONVERSIONS_H_
#define TF_SMDDP_KERNELS_TF_CONVERSIONS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/common/status.h"
#include "kernels/common/types.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_smddp {

// The ops' type attributes admit nothing else; InvalidArgument for a type that has slipped through.
absl::Status ToDType(tensorflow::DataType from, DType* to);

std::vector<std::int64_t> ToShape(const tensorflow::TensorShape& shape);

// The message is made valid UTF-8, which TensorFlow's Python side expects.
absl::Status ToTensorFlow(const Status& status);

// Every error becomes Internal: one that TensorFlow reports while a collective is under way is not caused by
// an argument of the user's.
Status FromTensorFlow(const absl::Status& status);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_CONVERSIONS_H_
