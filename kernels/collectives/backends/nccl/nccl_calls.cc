#include "kernels/collectives/backends/nccl/nccl_calls.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"

namespace tf_smddp::nccl {

namespace {

// A type of the host.
template <typename T>
bool Native(double value, std::uint64_t* bits) {
  const T rounded = static_cast<T>(value);
  if (value != 0 && !std::isnormal(rounded)) return false;
  *bits = 0;
  std::memcpy(bits, &rounded, sizeof rounded);
  return true;
}

// A type of 16 bits. The fraction of its pattern counts units of the last place, so that a carry from
// rounding gives the next exponent by itself.
bool Half(int mantissa_bits, int exponent_bits, double value, std::uint64_t* bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0) {
    *bits = sign;
    return true;
  }
  if (!std::isfinite(value)) return false;
  const int exponent = std::ilogb(value);
  if (exponent < 1 - bias || exponent > bias) return false;
  const double units = std::nearbyint(std::ldexp(std::fabs(value), mantissa_bits - exponent));
  const auto pattern =
      static_cast<std::uint64_t>(units) + (static_cast<std::uint64_t>(exponent + bias - 1) << mantissa_bits);
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (pattern >= infinity) return false;
  *bits = sign | pattern;
  return true;
}

}  // namespace

bool ScalarOf(DataType type, double value, std::uint64_t* bits) {
  switch (type) {
    case DataType::kFloat16:
      return Half(10, 5, value, bits);
    case DataType::kBFloat16:
      return Half(7, 8, value, bits);
    case DataType::kFloat32:
      return Native<float>(value, bits);
    case DataType::kFloat64:
      return Native<double>(value, bits);
    default:
      return false;
  }
}

namespace {

using Function = NcclCall::Function;

// How elements are reduced: as `parts` elements of a type of NCCL each.
struct Elements {
  DataType type;
  std::uint64_t parts;  // 0: NCCL has no such type
};

Elements ElementsOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {DataType::kFloat16, 1};
    case DType::kBFloat16:
      return {DataType::kBFloat16, 1};
    case DType::kFloat32:
      return {DataType::kFloat32, 1};
    case DType::kFloat64:
      return {DataType::kFloat64, 1};
    case DType::kInt32:
      return {DataType::kInt32, 1};
    case DType::kInt64:
      return {DataType::kInt64, 1};
    case DType::kBool:
    case DType::kUInt8:
      return {DataType::kUInt8, 1};
    case DType::kInt8:
      return {DataType::kInt8, 1};
    case DType::kUInt32:
      return {DataType::kUInt32, 1};
    case DType::kUInt64:
      return {DataType::kUInt64, 1};
    case DType::kComplex64:
      return {DataType::kFloat32, 2};
    case DType::kComplex128:
      return {DataType::kFloat64, 2};
    case DType::kInt16:
    case DType::kUInt16:
      break;
  }
  return {DataType::kInt8, 0};
}

Op OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return kSum;
    case ReduceOp::kAverage:
      return kAverage;
    case ReduceOp::kMin:
      return kMin;
    case ReduceOp::kMax:
      return kMax;
    case ReduceOp::kProduct:
      return kProduct;
  }
  return kSum;
}

bool HasFactor(const Operation& operation) { return operation.prescale != 1.0 || operation.postscale != 1.0; }

bool Adds(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAverage; }

// The one factor of each input: a sum of products is the product of the sum.
double FactorOf(const Operation& operation, int num_ranks) {
  const double factor = operation.prescale * operation.postscale;
  return operation.op == ReduceOp::kAverage ? factor / num_ranks : factor;
}

// The part that all calls of a request have in common.
NcclCall Moving(const void* input, void* output) {
  NcclCall made;
  made.send = input;
  made.receive = output;
  return made;
}

NcclCall Reducing(const Call& call, DataType type, const void* input, void* output) {
  const Operation& operation = call.operation;
  NcclCall made = Moving(input, output);
  made.type = type;
  made.op = OpOf(operation.op);
  made.scaled =
      HasFactor(operation) && ScalarOf(made.type, FactorOf(operation, call.num_ranks), &made.scalar);
  return made;
}

// The type in which elements cross the links.
DataType CompressedType(const Call& call) {
  const Operation& operation = call.operation;
  const DataType own = ElementsOf(operation.dtype).type;
  if (operation.dtype != DType::kFloat32 || operation.compression == Compression::kNone) return own;
  const DataType type =
      operation.compression == Compression::kFloat16 ? DataType::kFloat16 : DataType::kBFloat16;
  std::uint64_t scalar = 0;
  const bool fits = !HasFactor(operation) || ScalarOf(type, FactorOf(operation, call.num_ranks), &scalar);
  return fits ? type : own;
}

const void* At(const void* data, std::uint64_t bytes) { return static_cast<const std::byte*>(data) + bytes; }
void* At(void* data, std::uint64_t bytes) { return static_cast<std::byte*>(data) + bytes; }

// Appends the calls of one request.
class Appender {
 public:
  Appender(const Call& call, ParticipantId self, const void* input, void* output,
           std::vector<NcclCall>* calls)
      : call_(call),
        self_(self),
        input_(input),
        output_(output),
        type_(ElementsOf(call.operation.dtype).type),
        row_bytes_(call.row_count * DTypeBytes(call.operation.dtype)),
        row_parts_(call.row_count * ElementsOf(call.operation.dtype).parts),
        calls_(calls) {}

  void Allreduce(bool compresses) {
    const DataType type = compresses ? CompressedType(call_) : type_;
    NcclCall made = Reducing(call_, type, input_, output_);
    made.compressed = type != type_;
    Add(Function::kAllReduce, made, call_.num_rows * row_parts_);
  }

  void Broadcast() {
    NcclCall made = Moving(self_ == call_.root ? input_ : output_, output_);
    made.peer = call_.root.value();
    Add(Function::kBroadcast, made, call_.num_rows * row_bytes_);
  }

  void Allgather() {
    const std::vector<std::uint64_t>& rows = call_.rows;
    if (std::all_of(rows.begin(), rows.end(), [&](std::uint64_t each) { return each == rows.front(); })) {
      return Add(Function::kAllGather, Moving(input_, output_), rows.front() * row_bytes_);
    }
    std::uint64_t begin = 0;
    for (const ParticipantId sender : FirstIds<ParticipantId>(call_.num_ranks)) {
      void* const to = At(output_, begin * row_bytes_);
      NcclCall made = Moving(sender == self_ ? input_ : to, to);
      made.peer = sender.value();
      Add(Function::kBroadcast, made, rows[sender.index()] * row_bytes_);
      begin += rows[sender.index()];
    }
  }

  void Reducescatter() {
    const auto ranks = static_cast<std::uint64_t>(call_.num_ranks);
    if (call_.num_rows % ranks == 0 && !call_.root.valid()) {
      return Add(Function::kReduceScatter, Reducing(call_, type_, input_, output_),
                 call_.num_rows / ranks * row_parts_);
    }
    for (const ParticipantId owner : FirstIds<ParticipantId>(call_.num_ranks)) {
      const Shard shard = FindCollective(call_.operation.kind).PartFor(call_, self_, owner);  // elements
      const DType dtype = call_.operation.dtype;
      NcclCall made = Reducing(call_, type_, At(input_, shard.begin * DTypeBytes(dtype)), output_);
      made.peer = owner.value();
      Add(Function::kReduce, made, shard.count * ElementsOf(dtype).parts);
    }
  }

  void Alltoall() {
    std::uint64_t sent = 0, received = 0;
    for (const ParticipantId other : FirstIds<ParticipantId>(call_.num_ranks)) {
      NcclCall made = Moving(At(input_, sent * row_bytes_), At(output_, received * row_bytes_));
      made.peer = other.value();
      const std::uint64_t to_other = call_.SplitRows(self_, other);
      const std::uint64_t to_self = call_.SplitRows(other, self_);
      Add(Function::kSend, made, to_other * row_bytes_);
      Add(Function::kReceive, made, to_self * row_bytes_);
      sent += to_other;
      received += to_self;
    }
  }

 private:
  void Add(Function function, NcclCall made, std::uint64_t count) {
    if (count == 0) return;
    made.function = function;
    made.count = count;
    calls_->push_back(made);
  }

  const Call& call_;
  const ParticipantId self_;
  const void* const input_;
  void* const output_;
  const DataType type_;
  const std::uint64_t row_bytes_, row_parts_;
  std::vector<NcclCall>* const calls_;
};

}  // namespace

Support SupportOf(const Operation& operation, int num_ranks) {
  if (!IsReduction(operation.kind)) return Support::kYes;
  const Arithmetic arithmetic = InfoOf(operation.dtype).arithmetic;
  const auto [type, parts] = ElementsOf(operation.dtype);
  if (parts == 0) return Support::kNoType;
  if (!ReduceOpDefined(operation.dtype, operation.op)) return Support::kNoOp;
  if (arithmetic == Arithmetic::kComplex && !Adds(operation.op)) return Support::kNoOp;
  if (arithmetic == Arithmetic::kInteger && operation.op == ReduceOp::kAverage) return Support::kNoAverage;
  const bool extremum = operation.op == ReduceOp::kMin || operation.op == ReduceOp::kMax;
  if (arithmetic == Arithmetic::kFloat && extremum) return Support::kNoNan;
  if (!HasFactor(operation)) return Support::kYes;
  std::uint64_t scalar = 0;
  const double factor = FactorOf(operation, num_ranks);
  const bool vanished = factor == 0 && operation.prescale != 0 && operation.postscale != 0;
  return Adds(operation.op) && !vanished && ScalarOf(type, factor, &scalar) ? Support::kYes
                                                                            : Support::kNoFactor;
}

std::uint64_t MostCalls(const Call& call) {
  const auto ranks = static_cast<std::uint64_t>(call.num_ranks);
  switch (call.operation.kind) {
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kBroadcast:
      return 1;
    case CollectiveKind::kAllgather:
    case CollectiveKind::kReducescatter:
      return ranks;
    case CollectiveKind::kAlltoall:
      return 2 * ranks;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kCommunicator:
      return 0;
  }
  return 0;
}

void AppendCalls(const Call& call, ParticipantId self, const void* input, void* output,
                 std::vector<NcclCall>* calls, bool compresses) {
  Appender appender(call, self, input, output, calls);
  switch (call.operation.kind) {
    case CollectiveKind::kAllreduce:
      return appender.Allreduce(compresses);
    case CollectiveKind::kBroadcast:
      return appender.Broadcast();
    case CollectiveKind::kAllgather:
      return appender.Allgather();
    case CollectiveKind::kReducescatter:
      return appender.Reducescatter();
    case CollectiveKind::kAlltoall:
      return appender.Alltoall();
    case CollectiveKind::kBarrier:
    case CollectiveKind::kCommunicator:
      return;
  }
}

}  // namespace tf_smddp::nccl
