#include "kernels/cuda/reducer.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

extern const char tf_smddp_reductions_ptx[];  // reductions.cu

namespace tf_smddp::cuda {
namespace {

RowOp RowOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return RowOp::kAdd;
    case ReduceOp::kMin:
      return RowOp::kMin;
    case ReduceOp::kMax:
      return RowOp::kMax;
    case ReduceOp::kProduct:
      return RowOp::kMultiply;
  }
  __builtin_unreachable();
}

ReduceRow RowOf(const Reduction& reduction) {
  ReduceRow row = {};
  std::copy(reduction.inputs.begin(), reduction.inputs.end(), row.inputs);
  std::copy(reduction.outputs.begin(), reduction.outputs.end(), row.outputs);
  row.count = reduction.count;
  row.prescale = reduction.prescale;
  row.postscale = reduction.postscale;
  row.divisor = reduction.op == ReduceOp::kAverage ? reduction.num_inputs : 1;
  row.op = RowOpOf(reduction.op);
  row.num_inputs = reduction.num_inputs;
  row.num_outputs = reduction.num_outputs;
  return row;
}

// The kernel of a bool is that of a byte: the smaller one is the logical and, the larger one the logical or.
std::string KernelName(DType dtype) {
  return std::string("smddp_reduce_") + DTypeName(dtype == DType::kBool ? DType::kUInt8 : dtype);
}

bool IsComplex(DType dtype) { return InfoOf(dtype).arithmetic == Arithmetic::kComplex; }

}  // namespace

bool Reducer::Supports(DType dtype, ReduceOp op) {
  if (IsComplex(dtype) || !ReduceOpDefined(dtype, op)) return false;
  const bool wide = InfoOf(dtype).arithmetic == Arithmetic::kInteger && DTypeBytes(dtype) == 8;
  return !(wide && op == ReduceOp::kAverage);
}

Status Reducer::Open(const Driver* driver, Context context, std::unique_ptr<Reducer>* opened) {
  std::unique_ptr<Reducer> reducer(new Reducer);
  Status status = DeviceCode::Load(driver, context, tf_smddp_reductions_ptx, &reducer->code_);
  for (int i = 0; status.ok() && i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (IsComplex(dtype)) continue;
    status = reducer->code_->Find(KernelName(dtype).c_str(), &reducer->kernels_[static_cast<std::size_t>(i)]);
  }
  if (status.ok()) *opened = std::move(reducer);
  return status;
}

Status Reducer::Put(const std::vector<Reduction>& reductions, Stream stream) const {
  for (int i = 0; i < kNumDTypes; ++i) {
    const Status status = PutAlike(reductions, static_cast<DType>(i), stream);
    if (!status.ok()) return status;
  }
  return {};
}

// Those of one type.
Status Reducer::PutAlike(const std::vector<Reduction>& reductions, DType dtype, Stream stream) const {
  ReduceTable table = {};
  unsigned rows = 0;
  std::uint64_t most = 0;
  const auto launch = [&] {
    if (rows == 0) return Status();
    const auto tiles = static_cast<unsigned>((most + kReduceTile - 1) / kReduceTile);
    const Function kernel = kernels_[static_cast<std::size_t>(dtype)];
    const Status status = code_->Launch(kernel, tiles, rows, kReduceThreads, &table, stream);
    rows = 0;
    most = 0;
    return status;
  };
  for (const Reduction& reduction : reductions) {
    if (reduction.dtype != dtype || reduction.count == 0) continue;
    table.rows[rows++] = RowOf(reduction);
    most = std::max(most, reduction.count);
    if (rows < ReduceTable::kRows) continue;
    const Status status = launch();
    if (!status.ok()) return status;
  }
  return launch();
}

}  // namespace tf_smddp::cuda
