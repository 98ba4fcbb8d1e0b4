#include "kernels/tf/conversions.h"

#include <string>

#include "kernels/common/utf8.h"
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
    case tensorflow::DT_INT8:
      *to = DType::kInt8;
      return absl::OkStatus();
    case tensorflow::DT_INT16:
      *to = DType::kInt16;
      return absl::OkStatus();
    case tensorflow::DT_UINT16:
      *to = DType::kUInt16;
      return absl::OkStatus();
    case tensorflow::DT_UINT32:
      *to = DType::kUInt32;
      return absl::OkStatus();
    case tensorflow::DT_UINT64:
      *to = DType::kUInt64;
      return absl::OkStatus();
    case tensorflow::DT_COMPLEX64:
      *to = DType::kComplex64;
      return absl::OkStatus();
    case tensorflow::DT_COMPLEX128:
      *to = DType::kComplex128;
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

Status FromTensorFlow(const absl::Status& status) {
  return status.ok() ? Status() : Internal(std::string(status.message()));
}

absl::Status ToTensorFlow(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = ValidUtf8(status.message());
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(message);
    case StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace tf_smddp
