// The XLA kernels of the collectives, for functions that are compiled for the CPU or a GPU.
//
// Place in the stack: beside the kernels of the ops that run by themselves. XLA's shapes are fixed. So the
// kernels assume what the other ranks bring, and the program checks it when it runs (calls.cc).
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/engine/engine.h"
#include "kernels/process/global_engine.h"
#include "kernels/tf/collective_attributes.h"
#include "kernels/tf/conversions.h"
#include "kernels/tf/xla/call_emitter.h"
#include "kernels/tf/xla/registration.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::Tensor;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;
using ::xla::XlaOp;

constexpr char kRemedy[] = "; or compile this function with jit_compile=False";

// The base of all kernels here: it describes the call and emits it.
class CollectiveXlaKernel : public XlaOpKernel {
 public:
  CollectiveXlaKernel(OpKernelConstruction* context, CollectiveKind kind, int tensors,
                      Pairing::Kind sequence = Pairing::kSequence)
      : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, CollectiveAttributes::Read(context, kind, tensors, sequence, &attributes_));
  }

  void Compile(XlaOpKernelContext* context) final {
    CallDescription description;
    std::vector<XlaOp> inputs;
    absl::Status status = Describe(context, &description, &inputs);
    if (status.ok()) status = FillIn(context, &description);
    if (!status.ok()) return Refuse(context, status);
    std::vector<XlaOp> outputs;
    OP_REQUIRES_OK(context, Emit(context, description, inputs, &outputs));
    for (std::size_t i = 0; i < outputs.size(); ++i) context->SetOutput(static_cast<int>(i), outputs[i]);
  }

 protected:
  // Adds the fields of the description that only this collective has.
  virtual absl::Status FillIn(XlaOpKernelContext*, CallDescription*) { return absl::OkStatus(); }

  // `inputs` are the tensors, and then the ticket if there is one.
  virtual absl::Status Emit(XlaOpKernelContext* context, const CallDescription& description,
                            const std::vector<XlaOp>& inputs, std::vector<XlaOp>* outputs) {
    return CallEmitter(context).Run(description, inputs, outputs);
  }

  // Sets `ranks` to the number of ranks in the communicator and `own` to this rank's index among them, from
  // which the shapes of outputs follow.
  absl::Status FindRanks(std::int64_t* ranks, std::int64_t* own) const {
    const std::shared_ptr<Engine> engine = GlobalEngine();
    if (engine == nullptr) return ToTensorFlow(NotInitialized());
    const std::vector<int> members = engine->RanksOf(attributes_.communicator);
    *ranks = static_cast<std::int64_t>(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      *own = static_cast<std::int64_t>(i);
      if (members[i] == engine->config().rank) return absl::OkStatus();
    }
    return absl::FailedPreconditionError("this rank is not in process set " +
                                         std::to_string(attributes_.communicator) +
                                         ", or it has been removed");
  }

  RankId root() const { return attributes_.operation.root; }

  absl::Status CheckRows(const CallDescription::Tensor& tensor) const {
    if (!tensor.shape.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(std::string(CollectiveKindName(attributes_.operation.kind)) + " '" +
                                      tensor.label + "' of a scalar: it needs at least one dimension");
  }

 private:
  absl::Status Describe(XlaOpKernelContext* context, CallDescription* description,
                        std::vector<XlaOp>* inputs) const {
    description->operation = attributes_.operation;
    TF_RETURN_IF_ERROR(DescribeFactors(context, description));
    description->communicator = attributes_.communicator;
    description->has_ticket = attributes_.ticket_input >= 0;
    description->pairing = attributes_.pairing.kind;
    description->num_params = attributes_.pairing.num_params;
    for (std::size_t i = 0; i < attributes_.labels.size(); ++i) {
      CallDescription::Tensor tensor;
      tensor.label = attributes_.labels[i].text;
      tensor.meaning = attributes_.labels[i].meaning;
      tensor.param_index = attributes_.pairing.param_index + static_cast<std::uint32_t>(i);
      if (attributes_.tensors == 0) {
        tensor.dtype = DType::kUInt8;
        tensor.shape = {0};
      } else {
        TF_RETURN_IF_ERROR(DescribeInput(context, static_cast<int>(i), &tensor));
        inputs->push_back(context->Input(static_cast<int>(i)));
      }
      description->tensors.push_back(tensor);
    }
    if (attributes_.ticket_input >= 0) inputs->push_back(context->Input(attributes_.ticket_input));
    return absl::OkStatus();
  }

  absl::Status DescribeFactors(XlaOpKernelContext* context, CallDescription* description) const {
    if (attributes_.factors_input < 0) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(const Tensor factors, context->ConstantInputTensor(attributes_.factors_input));
    if (factors.NumElements() != 2) {
      return absl::InvalidArgumentError("the factors have the shape " + factors.shape().DebugString() +
                                        "; there must be two numbers");
    }
    description->operation.prescale = factors.flat<double>()(0);
    description->operation.postscale = factors.flat<double>()(1);
    return absl::OkStatus();
  }

  static absl::Status DescribeInput(XlaOpKernelContext* context, int index, CallDescription::Tensor* tensor) {
    TF_RETURN_IF_ERROR(ToDType(context->input_type(index), &tensor->dtype));
    TF_ASSIGN_OR_RETURN(const ::xla::Shape shape, context->InputXlaShape(index));
    if (!shape.is_static()) {
      return absl::InvalidArgumentError(
          "the tensor '" + tensor->label + "' has a shape that depends on data (" + shape.ToString() +
          "), which XLA cannot hand to a collective: give it a fixed one" + kRemedy);
    }
    tensor->shape.assign(shape.dimensions().begin(), shape.dimensions().end());
    return absl::OkStatus();
  }

  // Fails the step on the other ranks too: they may run this op, and would wait for this rank.
  void Refuse(XlaOpKernelContext* context, const absl::Status& status) const {
    if (const std::shared_ptr<Engine> engine = GlobalEngine()) {
      engine->FailStep(attributes_.communicator, kNoStep,
                       "rank " + std::to_string(engine->config().rank) + " could not compile " +
                           CollectiveKindName(attributes_.operation.kind) + " '" +
                           attributes_.labels[0].text + "': " + std::string(status.message()));
    }
    context->SetStatus(status);
  }

  CollectiveAttributes attributes_;
};

// Serves SmddpOobAllreduce as well, which has no ticket.
class AllreduceXlaKernel : public CollectiveXlaKernel {
 public:
  explicit AllreduceXlaKernel(OpKernelConstruction* context)
      : CollectiveXlaKernel(context, CollectiveKind::kAllreduce, context->num_outputs(),
                            Pairing::kOutOfBand) {}
};

class GroupedAllreduceXlaKernel : public AllreduceXlaKernel {
 public:
  explicit GroupedAllreduceXlaKernel(OpKernelConstruction* context)
      : AllreduceXlaKernel(context),
        starts_in_order_(context->device_type().type_string() == "XLA_CPU_JIT") {}

 protected:
  absl::Status Emit(XlaOpKernelContext* context, const CallDescription& description,
                    const std::vector<XlaOp>& inputs, std::vector<XlaOp>* outputs) override {
    const std::vector<XlaOp> tensors(inputs.begin(), inputs.end() - 1);
    return CallEmitter(context).RunGroup(description, tensors, inputs.back(), starts_in_order_, outputs);
  }

 private:
  const bool starts_in_order_;
};

// The base of the collectives whose outputs' rows depend on the number of ranks.
class RowsXlaKernel : public CollectiveXlaKernel {
 public:
  using CollectiveXlaKernel::CollectiveXlaKernel;

 protected:
  // The rows of an output, part by part, for an input of `rows` rows on rank `own` of `ranks`.
  virtual std::vector<std::int64_t> OutputRows(std::int64_t rows, std::int64_t ranks,
                                               std::int64_t own) const = 0;

  absl::Status FillIn(XlaOpKernelContext*, CallDescription* description) final {
    std::int64_t ranks = 0;
    std::int64_t own = 0;
    TF_RETURN_IF_ERROR(FindRanks(&ranks, &own));
    for (CallDescription::Tensor& tensor : description->tensors) {
      TF_RETURN_IF_ERROR(CheckRows(tensor));
      tensor.rows = OutputRows(tensor.shape[0], ranks, own);
    }
    return absl::OkStatus();
  }
};

class AllgatherXlaKernel : public RowsXlaKernel {
 public:
  explicit AllgatherXlaKernel(OpKernelConstruction* context)
      : RowsXlaKernel(context, CollectiveKind::kAllgather, context->num_outputs()) {}

 protected:
  std::vector<std::int64_t> OutputRows(std::int64_t rows, std::int64_t ranks, std::int64_t) const override {
    return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), rows);
  }
};

class ReducescatterXlaKernel : public RowsXlaKernel {
 public:
  explicit ReducescatterXlaKernel(OpKernelConstruction* context)
      : RowsXlaKernel(context, CollectiveKind::kReducescatter, context->num_outputs()) {}

 protected:
  std::vector<std::int64_t> OutputRows(std::int64_t rows, std::int64_t ranks,
                                       std::int64_t own) const override {
    if (root().valid()) return {root() == RankId(GlobalEngine()->config().rank) ? rows : 0};
    return {rows / ranks + (own < rows % ranks ? 1 : 0)};
  }
};

// Assumes that all ranks have the same splits.
class AlltoallXlaKernel : public CollectiveXlaKernel {
 public:
  explicit AlltoallXlaKernel(OpKernelConstruction* context)
      : CollectiveXlaKernel(context, CollectiveKind::kAlltoall, 1) {}

 protected:
  absl::Status FillIn(XlaOpKernelContext* context, CallDescription* description) override {
    std::int64_t ranks = 0;
    std::int64_t own = 0;
    TF_RETURN_IF_ERROR(FindRanks(&ranks, &own));
    CallDescription::Tensor& tensor = description->tensors[0];
    TF_RETURN_IF_ERROR(CheckRows(tensor));
    std::vector<std::int64_t>& splits = description->splits;
    const absl::Status constant = context->ConstantInputAsIntVector(1, &splits);
    if (!constant.ok()) {
      return absl::InvalidArgumentError("alltoall '" + tensor.label +
                                        "' has splits that are not known when XLA compiles it, and with "
                                        "them its shape: give constant ones, or none to split evenly" +
                                        kRemedy + ". (" + std::string(constant.message()) + ")");
    }
    const std::int64_t rows = tensor.shape[0];
    if (splits.empty()) {
      if (rows % ranks != 0) {
        return absl::InvalidArgumentError("alltoall of " + std::to_string(rows) + " rows over " +
                                          std::to_string(ranks) +
                                          " ranks without splits: they do not divide evenly; give splits");
      }
      splits.assign(static_cast<std::size_t>(ranks), rows / ranks);
    }
    if (static_cast<std::int64_t>(splits.size()) != ranks) {
      return absl::InvalidArgumentError("alltoall '" + tensor.label + "' has " +
                                        std::to_string(splits.size()) + " splits for " +
                                        std::to_string(ranks) + " ranks; give one for each rank");
    }
    tensor.rows.assign(static_cast<std::size_t>(ranks), splits[static_cast<std::size_t>(own)]);
    return absl::OkStatus();
  }

  absl::Status Emit(XlaOpKernelContext* context, const CallDescription& description,
                    const std::vector<XlaOp>& inputs, std::vector<XlaOp>* outputs) override {
    TF_RETURN_IF_ERROR(CollectiveXlaKernel::Emit(context, description, inputs, outputs));
    const std::vector<std::int64_t>& rows = description.tensors[0].rows;
    Tensor received(::tensorflow::DT_INT64, {static_cast<std::int64_t>(rows.size())});
    for (std::size_t i = 0; i < rows.size(); ++i) received.flat<std::int64_t>()(i) = rows[i];
    context->SetConstantOutput(1, received);
    return absl::OkStatus();
  }
};

class BroadcastXlaKernel : public CollectiveXlaKernel {
 public:
  explicit BroadcastXlaKernel(OpKernelConstruction* context)
      : CollectiveXlaKernel(context, CollectiveKind::kBroadcast, 1) {}
};

class BarrierXlaKernel : public CollectiveXlaKernel {
 public:
  explicit BarrierXlaKernel(OpKernelConstruction* context)
      : CollectiveXlaKernel(context, CollectiveKind::kBarrier, 0) {}
};

TF_SMDDP_REGISTER_XLA("SmddpAllreduce", AllreduceXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpGroupedAllreduce", GroupedAllreduceXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpOobAllreduce", AllreduceXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpAllgather", AllgatherXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpReducescatter", ReducescatterXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpAlltoall", AlltoallXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpBroadcast", BroadcastXlaKernel);
TF_SMDDP_REGISTER_XLA("SmddpBarrier", BarrierXlaKernel);

}  // namespace
}  // namespace tf_smddp
