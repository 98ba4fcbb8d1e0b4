#include "kernels/tf/xla/calls.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/utf8.h"
#include "kernels/process/global_engine.h"
#include "kernels/tf/tensorflow_private.h"
#include "kernels/tf/xla/custom_calls.h"

namespace tf_smddp {
namespace {

std::size_t Bytes(const CallDescription::Tensor& tensor) {
  const std::int64_t count =
      std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(count) * DTypeBytes(tensor.dtype);
}

std::string Listed(const std::vector<std::int64_t>& rows) {
  std::string text;
  for (const std::int64_t row : rows) text += (text.empty() ? "" : ", ") + std::to_string(row);
  return "[" + text + "]";
}

// Checks the rows that the ranks have brought against those that the program was compiled for.
AllocateOutput ExpectRows(const XlaCall& call, std::size_t index) {
  const CallDescription::Tensor& tensor = call.description.tensors[index];
  return [expected = tensor.rows, label = tensor.label, kind = call.description.operation.kind,
          result = call.results[index]](const std::vector<std::int64_t>& rows, void** output) {
    *output = result;
    if (rows == expected) return Status();
    return Internal(std::string(CollectiveKindName(kind)) + " '" + label +
                    "' was compiled by XLA for the rows " + Listed(expected) +
                    " from the ranks, but they have brought " + Listed(rows) +
                    ". Compiled code has fixed shapes: bring the same number of rows on all ranks (for an "
                    "alltoall the same splits), or compile this function with jit_compile=False");
  };
}

Status Draw(const XlaCall& call, std::int64_t* ticket) {
  std::uint64_t drawn = 0;
  Status status = call.engine->DrawTicket(call.description.communicator, kNoStep, &drawn);
  *ticket = static_cast<std::int64_t>(drawn);
  return status;
}

// The first operand is unused: it is the tensor that must have been computed before the ticket is drawn.
Status DrawTicket(XlaCall& call) {
  std::int64_t ticket = 0;
  Status status = Draw(call, &ticket);
  if (!status.ok()) return status;
  call.memory->KeepTicket(call.description, ticket, call.results[0]);
  call.memory->KeepToken(call.memory->ReadToken(call.operands[1]), call.results[1]);
  return {};
}

// A late ticket comes from another computation, and is drawn here. Without one there is nothing to read.
Status TicketOf(const XlaCall& call, std::size_t operand, std::int64_t* ticket) {
  *ticket = -1;
  if (!call.description.has_ticket) return {};
  Status status = call.memory->ReadTicket(call.description, call.operands[operand], ticket);
  return status.ok() && *ticket == kLateTicket ? Draw(call, ticket) : status;
}

// The first operand is unused, as above.
Status Begin(XlaCall& call) {
  const CallDescription& description = call.description;
  std::int64_t ticket = 0;
  Status status = description.has_ticket ? TicketOf(call, 1, &ticket) : Draw(call, &ticket);
  if (!status.ok()) return status;
  const std::uint64_t number = GroupRun::Keep(
      std::make_shared<GroupRun>(call.engine, description.communicator, description.places, ticket));
  call.memory->KeepToken(number, call.results[0]);
  return {};
}

// XLA does not touch the result's buffer until the finish call, so the engine may write into it until then.
Status Start(XlaCall& call) {
  const CallDescription& description = call.description;
  void* const buffer = call.results[0];
  const std::uint64_t number = call.memory->ReadToken(call.operands[1]);
  const std::shared_ptr<GroupRun> run = GroupRun::Find(number);
  if (run == nullptr) return Internal("a compiled function continues a group of tensors that has ended");
  Status status;
  const std::size_t bytes = Bytes(description.tensors[0]);
  if (buffer != call.operands[0] && bytes > 0) status = call.memory->Copy(call.operands[0], buffer, bytes);
  Request request = description.MakeRequest(0, run->ticket());
  WhenWritten when_written;
  if (status.ok()) status = call.memory->SetBuffers(buffer, buffer, &request, &when_written);
  if (!status.ok()) return status;
  status = run->Start(description.place, std::move(request), std::move(when_written));
  call.memory->KeepToken(number, call.results[1]);
  return status;
}

Status Finish(XlaCall& call) {
  const CallDescription& description = call.description;
  const std::uint64_t number = call.memory->ReadToken(call.operands[1]);
  const std::shared_ptr<GroupRun> run = GroupRun::Find(number);
  if (run == nullptr) return Internal("a compiled function finishes a group that has ended");
  Status status = run->Finish(description.place);
  const std::size_t bytes = Bytes(description.tensors[0]);
  if (status.ok() && bytes > 0) {
    // Another address here means that XLA has copied the buffer while the engine was writing to it.
    if (run->OutputOf(description.place) != call.operands[0]) {
      status = Internal("XLA has moved the tensor '" + description.tensors[0].label +
                        "' during its reduction. This is an error of tf_smddp; use jit_compile=False");
    } else if (call.results[0] != call.operands[0]) {
      status = call.memory->Copy(call.operands[0], call.results[0], bytes);
    }
  }
  if (description.place + 1 == description.places) GroupRun::Forget(number);
  call.memory->KeepToken(number, call.results[1]);
  return status;
}

Status Run(XlaCall& call) {
  const CallDescription& description = call.description;
  std::int64_t ticket = 0;
  Status status = TicketOf(call, call.tensors(), &ticket);
  std::vector<Request> requests;
  std::vector<WhenWritten> when_written(description.tensors.size());
  for (std::size_t i = 0; status.ok() && i < description.tensors.size(); ++i) {
    Request request = description.MakeRequest(i, ticket);
    if (call.tensors() > 0) {
      const bool in_place = description.tensors[i].rows.empty();
      status = call.memory->SetBuffers(call.operands[i], in_place ? call.results[i] : nullptr, &request,
                                       &when_written[i]);
      if (!in_place) request.allocate = ExpectRows(call, i);
    }
    requests.push_back(std::move(request));
  }
  if (!status.ok()) return status;
  const auto run = std::make_shared<GroupRun>(call.engine, description.communicator, requests.size());
  call.memory->KeepToken(0, call.results[call.tensors()]);
  return run->Run(std::move(requests), std::move(when_written));
}

// The first operand is unused: it is the tensor that must have been computed before the chain continues.
Status Pass(XlaCall& call) {
  call.memory->KeepToken(call.memory->ReadToken(call.operands[1]), call.results[0]);
  return {};
}

Status Execute(CallKind kind, XlaCall& call) {
  switch (kind) {
    case CallKind::kTicket:
      return DrawTicket(call);
    case CallKind::kBegin:
      return Begin(call);
    case CallKind::kStart:
      return Start(call);
    case CallKind::kFinish:
      return Finish(call);
    case CallKind::kRun:
      return Run(call);
    case CallKind::kPass:
      return Pass(call);
  }
  return Internal("a compiled function makes a call of an unknown kind");
}

}  // namespace

std::size_t XlaCall::tensors() const {
  return InfoOf(description.operation.kind).Is(kHasNoTensor) ? 0 : description.tensors.size();
}

std::size_t XlaCall::OperandCount(CallKind kind) const {
  switch (kind) {
    case CallKind::kTicket:  // a tensor, token
    case CallKind::kStart:   // a tensor, token
    case CallKind::kPass:    // a tensor, token
      return 2;
    case CallKind::kBegin:  // a tensor, ticket, token
      return description.has_ticket ? 3 : 2;
    case CallKind::kFinish:  // a buffer, token; or the tokens of all starts
      return description.place == 0 ? 1 + description.places : 2;
    case CallKind::kRun:  // tensors, ticket, token
      break;
  }
  return tensors() + (description.has_ticket ? 2 : 1);
}

void ExecuteCall(CallKind kind, const char* text, std::size_t length,
                 const std::function<Status(XlaCall*)>& place, XlaCustomCallStatus_* outcome) {
  XlaCall call;
  call.engine = GlobalEngine();
  Status status;
  if (call.engine == nullptr) {
    status = NotInitialized();
  } else if (!CallDescription::Parse(text, length, &call.description)) {
    status = Internal("a compiled function holds a call that tf_smddp did not write");
  } else {
    status = place(&call);
    if (status.ok()) status = Execute(kind, call);
  }
  if (status.ok()) return;
  // After an error XLA reuses all buffers of the program, also those of groups in other chains.
  GroupRun::WithdrawKept(status);
  SetCustomCallFailure(outcome, ValidUtf8(status.message()));
}

}  // namespace tf_smddp
