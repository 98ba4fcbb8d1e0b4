#include "ops/shape_functions.h"

#include <vector>

namespace tf_smddp {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status CheckTicket(InferenceContext* context) {
  std::vector<ShapeHandle> ticket;
  TF_RETURN_IF_ERROR(context->input("ticket", &ticket));
  ShapeHandle scalar;
  return context->WithRank(ticket[0], 0, &scalar);
}

absl::Status SetOtherRows(InferenceContext* context, int index) {
  ShapeHandle with_rows;
  ShapeHandle output;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(index), 1, &with_rows));
  TF_RETURN_IF_ERROR(context->ReplaceDim(with_rows, 0, context->UnknownDim(), &output));
  context->set_output(index, output);
  return absl::OkStatus();
}

}  // namespace

absl::Status UnchangedShapes(InferenceContext* context) {
  for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

absl::Status SameShapes(InferenceContext* context) {
  TF_RETURN_IF_ERROR(CheckTicket(context));
  return UnchangedShapes(context);
}

absl::Status OtherRows(InferenceContext* context) {
  TF_RETURN_IF_ERROR(CheckTicket(context));
  for (int i = 0; i < context->num_outputs(); ++i) TF_RETURN_IF_ERROR(SetOtherRows(context, i));
  return absl::OkStatus();
}

absl::Status AlltoallShapes(InferenceContext* context) {
  TF_RETURN_IF_ERROR(CheckTicket(context));
  TF_RETURN_IF_ERROR(SetOtherRows(context, 0));
  ShapeHandle splits;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &splits));
  const DimensionHandle ranks = context->Dim(splits, 0);
  context->set_output(1, context->Vector(context->Value(ranks) > 0 ? ranks : context->UnknownDim()));
  return absl::OkStatus();
}

}  // namespace tf_smddp
