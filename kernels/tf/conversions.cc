#include "kernels/tf/conversions.h"

#include <string>

#include "kernels/common/dtype_table.h"
#include "kernels/common/utf8.h"
#include "tensorflow/core/framework/types.h"

namespace tf_smddp {

absl::Status ToDType(tensorflow::DataType from, DType* to) {
  switch (from) {
#define TF_SMDDP_CASE(enumerator, name, tensorflow_name, data_type, ...) \
  case tensorflow::DT_##data_type:                                       \
    *to = DType::k##enumerator;                                          \
    return absl::OkStatus();
    TF_SMDDP_DTYPES(TF_SMDDP_CASE, )
#undef TF_SMDDP_CASE
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
  if (status.ok()) return {};
  const bool no_memory = absl::IsResourceExhausted(status);
  return {no_memory ? StatusCode::kNoMemoryNow : StatusCode::kInternal, std::string(status.message())};
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
