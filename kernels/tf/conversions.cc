#include "kernels/tf/conversions.h"

#include "tensorflow/core/framework/types.h"

namespace tf_smddp {

absl::Status ToDType(tensorflow::DataType from, DType* to) {
  switch (from) {
    case tensorflow::DT_HALF:
      *to = DType::kFloat16;
      return absl::OkStatus();
    case tensorflow::DT_BFLOAT16:
      *to = DType::kBFloat16;
      return absl::OkStatus();
    case tensorflow::DT_FLOAT:
      *to = DType::kFloat32;
      return absl::OkStatus();
    case tensorflow::DT_DOUBLE:
      *to = DType::kFloat64;
      return absl::OkStatus();
    case tensorflow::DT_INT32:
      *to = DType::kInt32;
      return absl::OkStatus();
    case tensorflow::DT_INT64:
      *to = DType::kInt64;
      return absl::OkStatus();
    case tensorflow::DT_UINT8:
      *to = DType::kUInt8;
      return absl::OkStatus();
    case tensorflow::DT_BOOL:
      *to = DType::kBool;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("tf_smddp has no collectives for tensors of type " +
                                        tensorflow::DataTypeString(from) + "; cast the tensor");
  }
}

std::vector<std::int64_t> ToShape(const tensorflow::TensorShape& shape) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.dims(); ++i) dims.push_back(shape.dim_size(i));
  return dims;
}

absl::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return absl::OkStatus();
    case StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(status.message());
    case StatusCode::kInternal:
      break;
  }
  return absl::InternalError(status.message());
}

}  // namespace tf_smddp
