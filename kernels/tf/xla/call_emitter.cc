#include "kernels/tf/xla/call_emitter.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "kernels/tf/xla/builder.h"
#include "kernels/tf/xla/custom_calls.h"
#include "tensorflow/compiler/tf2xla/xla_context.h"
#include "tensorflow/compiler/tf2xla/xla_resource.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"

namespace tf_smddp {
namespace {

using ::tensorflow::XlaContext;
using ::tensorflow::XlaResource;
using ::xla::Shape;
using ::xla::ShapeUtil;
using ::xla::XlaOp;

// As memory has it: row-major.
Shape Plain(Shape shape) {
  ::xla::LayoutUtil::SetToDefaultLayout(&shape);
  return shape;
}

Shape TokenShape() { return Plain(ShapeUtil::MakeShape(::xla::S64, {})); }

constexpr char kChainName[] = "tf_smddp_chain";

XlaResource* FindResource(XlaContext* computation) {
  for (const std::unique_ptr<XlaResource>& resource : computation->resources()) {
    if (resource->name() == kChainName) return resource.get();
  }
  return nullptr;
}

// The resource that holds the chain's end in this computation: the one that the computation around it has
// handed in, or a new one, which goes on from there unless nothing was handed in.
XlaResource* ChainEnd(XlaContext* computation, ::xla::XlaBuilder* builder, bool hand_back) {
  XlaResource* const handed_in = FindResource(computation);
  if (handed_in != nullptr && hand_back) return handed_in;
  return computation->AddResource(std::make_unique<XlaResource>(
      XlaResource::kVariable, /*arg_num=*/-1, kChainName, ::tensorflow::DT_INT64, ::tensorflow::TensorShape(),
      handed_in != nullptr ? handed_in->value() : ::xla::ConstantR0<std::int64_t>(builder, 0),
      /*max_array_size=*/-1, /*tensor_array_gradients=*/std::set<std::string>(),
      /*tensor_array_multiple_writes_aggregate=*/false));
}

}  // namespace

// Kept for as long as one computation is being compiled: TensorFlow makes a step container for each, and
// empties it at the end.
class CallEmitter::Chain : public ::tensorflow::ResourceBase {
 public:
  explicit Chain(XlaResource* end) : end(end) {}
  std::string DebugString() const override { return "the chain of tf_smddp's calls"; }

  XlaResource* const end;  // its value is the last token; the computation owns it
  struct Ticket {
    XlaOp late, drawn;
    std::uint64_t number;
  };
  std::vector<Ticket> tickets;  // `drawn` is not valid yet where nothing has used it

  // Returns nullptr for a ticket from another computation.
  Ticket* Find(XlaOp ticket) {
    for (Ticket& known : tickets) {
      if (known.late.IsIdenticalTo(ticket)) return &known;
    }
    return nullptr;
  }
};

absl::Status CallEmitter::FindChain(Chain** found, bool hand_back) {
  ::tensorflow::OpKernelContext* const context = context_->op_kernel_context();
  // Outside of the lock of resources, which these take.
  XlaContext* const computation = context_->xla_context();
  ::xla::XlaBuilder* const builder = context_->builder();
  Chain* chain = nullptr;
  TF_RETURN_IF_ERROR(context->step_container()->LookupOrCreate<Chain>(
      context->resource_manager(), kChainName, &chain, [=](Chain** made) {
        *made = new Chain(ChainEnd(computation, builder, hand_back));
        return absl::OkStatus();
      }));
  *found = chain;
  chain->Unref();  // the container holds it
  return absl::OkStatus();
}

absl::Status CallEmitter::ChainResource(bool hand_back, XlaResource** resource) {
  Chain* chain = nullptr;
  TF_RETURN_IF_ERROR(FindChain(&chain, hand_back));
  *resource = chain->end;
  return absl::OkStatus();
}

absl::Status CallEmitter::Call(const char* target, const CallDescription& description,
                               std::vector<XlaOp> operands, const std::vector<Shape>& results,
                               std::size_t aliased, std::vector<XlaOp>* outputs) {
  ::xla::XlaBuilder* const builder = context_->builder();
  Chain* chain = nullptr;
  TF_RETURN_IF_ERROR(FindChain(&chain));
  operands.push_back(chain->end->value());
  std::vector<Shape> operand_shapes;
  for (const XlaOp operand : operands) {
    TF_ASSIGN_OR_RETURN(Shape shape, builder->GetShape(operand));
    operand_shapes.push_back(Plain(std::move(shape)));
  }
  std::vector<Shape> result_shapes = results;
  result_shapes.push_back(TokenShape());
  using Index = ::xla::ShapeIndex;
  std::vector<std::pair<Index, std::pair<std::int64_t, Index>>> aliases(aliased);
  for (std::size_t i = 0; i < aliased; ++i) {
    aliases[i].first.push_back(static_cast<std::int64_t>(i));
    aliases[i].second.first = static_cast<std::int64_t>(i);
  }
  // Note [Starts of a group].
  const bool is_tuple = target != kBeginCall;
  const auto schedule = target == kStartCall ? ::xla::CustomCallSchedule::SCHEDULE_EARLIEST
                                             : ::xla::CustomCallSchedule::SCHEDULE_NONE;
  const XlaOp call = ::xla::CustomCallWithLayout(
      builder, target, operands, is_tuple ? ShapeUtil::MakeTupleShape(result_shapes) : TokenShape(),
      operand_shapes, description.Serialize(), /*has_side_effect=*/true, aliases, /*literal=*/nullptr,
      schedule, ::xla::CustomCallApiVersion::API_VERSION_STATUS_RETURNING_UNIFIED);
  outputs->clear();
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs->push_back(::xla::GetTupleElement(call, static_cast<std::int64_t>(i)));
  }
  TF_RETURN_IF_ERROR(chain->end->SetValue(
      is_tuple ? ::xla::GetTupleElement(call, static_cast<std::int64_t>(results.size())) : call));
  return builder->first_error();
}

absl::Status CallEmitter::LateTicket(XlaOp* ticket) {
  static std::atomic<std::uint64_t> last_number{0};
  Chain* chain = nullptr;
  TF_RETURN_IF_ERROR(FindChain(&chain));
  *ticket = ::xla::ConstantR0<std::int64_t>(context_->builder(), kLateTicket);
  chain->tickets.push_back({*ticket, XlaOp(), ++last_number});
  return absl::OkStatus();
}

absl::Status CallEmitter::Drawn(CallDescription* description, XlaOp first, XlaOp* ticket) {
  Chain* chain = nullptr;
  TF_RETURN_IF_ERROR(FindChain(&chain));
  Chain::Ticket* const known = chain->Find(*ticket);
  if (known == nullptr) return absl::OkStatus();  // as it is
  description->ticket_number = known->number;
  if (!known->drawn.valid()) {
    CallDescription draw;
    draw.communicator = description->communicator;
    draw.ticket_number = known->number;
    std::vector<XlaOp> outputs;
    TF_RETURN_IF_ERROR(Call(kTicketCall, draw, {first}, {TokenShape()}, 0, &outputs));
    known->drawn = outputs[0];
  }
  *ticket = known->drawn;
  return absl::OkStatus();
}

absl::Status CallEmitter::Pass(XlaOp tensor) {
  std::vector<XlaOp> outputs;
  return Call(kPassCall, CallDescription(), {tensor}, {}, 0, &outputs);
}

absl::Status CallEmitter::Run(const CallDescription& description, const std::vector<XlaOp>& inputs,
                              std::vector<XlaOp>* outputs) {
  std::vector<Shape> results;
  std::size_t aliased = 0;
  if (!InfoOf(description.operation.kind).Is(kHasNoTensor)) {
    for (std::size_t i = 0; i < description.tensors.size(); ++i) {
      TF_ASSIGN_OR_RETURN(Shape shape, context_->builder()->GetShape(inputs[i]));
      const std::vector<std::int64_t>& rows = description.tensors[i].rows;
      if (rows.empty()) {
        ++aliased;
      } else {
        shape.set_dimensions(0, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
      }
      results.push_back(Plain(std::move(shape)));
    }
  }
  std::vector<XlaOp> operands = inputs;
  CallDescription call = description;
  if (call.has_ticket) TF_RETURN_IF_ERROR(Drawn(&call, inputs[0], &operands.back()));
  return Call(kRunCall, call, std::move(operands), results, aliased, outputs);
}

absl::Status CallEmitter::RunGroup(const CallDescription& description, const std::vector<XlaOp>& tensors,
                                   XlaOp ticket, bool starts_in_order, std::vector<XlaOp>* outputs) {
  const std::size_t count = tensors.size();
  Chain* chain = nullptr;
  TF_RETURN_IF_ERROR(FindChain(&chain));
  std::vector<XlaOp> results;
  CallDescription one = description;
  one.places = static_cast<std::uint32_t>(count);
  CallDescription begin = one;
  std::vector<XlaOp> first{tensors.back()};
  const Chain::Ticket* const late = chain->Find(ticket);
  begin.has_ticket = late == nullptr || late->drawn.valid();
  if (begin.has_ticket) {
    TF_RETURN_IF_ERROR(Drawn(&begin, tensors.back(), &ticket));
    first.push_back(ticket);
  }
  TF_RETURN_IF_ERROR(Call(kBeginCall, begin, std::move(first), {}, 0, &results));
  const XlaOp begun = chain->end->value();
  std::vector<XlaOp> started(count);
  std::vector<XlaOp> tokens;
  for (const char* target : {kStartCall, kFinishCall}) {
    const bool starts = target == kStartCall;
    for (std::size_t place = 0; place < count; ++place) {
      const std::size_t i = count - 1 - place;
      one.place = static_cast<std::uint32_t>(place);
      one.tensors = {description.tensors[i]};
      std::vector<XlaOp> operands{starts ? tensors[i] : started[i]};
      if (starts && !starts_in_order) TF_RETURN_IF_ERROR(chain->end->SetValue(begun));
      if (!starts && place == 0) operands.insert(operands.end(), tokens.begin(), tokens.end() - 1);
      TF_ASSIGN_OR_RETURN(Shape shape, context_->builder()->GetShape(tensors[i]));
      TF_RETURN_IF_ERROR(Call(target, one, operands, {Plain(std::move(shape))}, 1, &results));
      started[i] = results[0];
      tokens.push_back(chain->end->value());
    }
  }
  *outputs = started;
  return absl::OkStatus();
}

}  // namespace tf_smddp
