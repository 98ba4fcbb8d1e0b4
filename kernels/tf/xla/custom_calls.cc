// The functions that compiled programs call: they draw a ticket, start one tensor of a group, finish it, or
// run a whole collective.
//
// Place in the stack: between XLA's programs, which know the functions by name (custom_calls.h), and
// group_run.h. XLA passes pointers to its buffers. The last operand and the last result are the chain's
// tokens (call_emitter.h).
#include "kernels/tf/xla/custom_calls.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/utf8.h"
#include "kernels/tf/global_engine.h"
#include "kernels/tf/tensorflow_private.h"
#include "kernels/tf/xla/call_description.h"
#include "kernels/tf/xla/group_run.h"
#include "xla/service/custom_call_status.h"
#include "xla/service/custom_call_target_registry.h"

namespace tf_smddp {
namespace {

// One call: its description and its buffers.
struct Call {
  CallDescription description;
  const void** operands = nullptr;
  void** results = nullptr;
  std::shared_ptr<Engine> engine;

  std::int64_t Number(std::size_t operand) const {
    std::int64_t number;
    std::memcpy(&number, operands[operand], sizeof number);
    return number;
  }
  // Operands: tensors, ticket, token; results: tensors, token.
  std::size_t tensors() const {
    return InfoOf(description.operation.kind).Is(kHasNoTensor) ? 0 : description.tensors.size();
  }
  std::int64_t ticket() const { return description.has_ticket ? Number(tensors()) : -1; }
  std::int64_t token() const { return Number(tensors() + (description.has_ticket ? 1 : 0)); }
  void SetToken(std::uint64_t token) const { std::memcpy(results[tensors()], &token, sizeof token); }

  std::size_t Bytes(std::size_t index) const {
    const CallDescription::Tensor& tensor = description.tensors[index];
    const std::int64_t count =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    return static_cast<std::size_t>(count) * DTypeBytes(tensor.dtype);
  }
};

std::string Listed(const std::vector<std::int64_t>& rows) {
  std::string text;
  for (const std::int64_t row : rows) text += (text.empty() ? "" : ", ") + std::to_string(row);
  return "[" + text + "]";
}

// Checks the rows that the ranks have brought against those that the program was compiled for.
AllocateOutput ExpectRows(const Call& call, std::size_t index) {
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

Status Draw(const Call& call, std::int64_t* ticket) {
  std::uint64_t drawn = 0;
  Status status = call.engine->DrawTicket(call.description.communicator, kNoStep, &drawn);
  *ticket = static_cast<std::int64_t>(drawn);
  return status;
}

// The first operand is unused: it is the tensor that must have been computed before the ticket is drawn.
Status DrawTicket(Call& call) {
  std::int64_t ticket = 0;
  Status status = Draw(call, &ticket);
  if (!status.ok()) return status;
  std::memcpy(call.results[0], &ticket, sizeof ticket);
  const std::int64_t token = call.Number(1);
  std::memcpy(call.results[1], &token, sizeof token);
  return {};
}

// Reads the ticket's operand. A late ticket comes from another computation, and is drawn here.
Status TicketOf(const Call& call, std::int64_t* ticket) {
  *ticket = call.ticket();
  return call.description.has_ticket && *ticket == kLateTicket ? Draw(call, ticket) : Status();
}

// XLA does not touch the result's buffer until the finish call, so the engine may write into it until then.
Status Start(Call& call) {
  const CallDescription& description = call.description;
  std::int64_t ticket = 0;
  Status status = TicketOf(call, &ticket);
  if (!status.ok()) return status;
  std::uint64_t number = static_cast<std::uint64_t>(call.token());
  if (description.place == 0) {
    number =
        GroupRun::Keep(std::make_shared<GroupRun>(call.engine, description.communicator, description.places));
  }
  const std::shared_ptr<GroupRun> run = GroupRun::Find(number);
  if (run == nullptr) return Internal("a compiled function continues a group of tensors that has ended");
  if (call.results[0] != call.operands[0] && call.Bytes(0) > 0) {
    std::memcpy(call.results[0], call.operands[0], call.Bytes(0));
  }
  Request request = description.MakeRequest(0, ticket);
  request.input = call.results[0];
  request.output = call.results[0];
  status = run->Start(description.place, std::move(request));
  call.SetToken(number);
  return status;
}

Status Finish(Call& call) {
  const CallDescription& description = call.description;
  const auto number = static_cast<std::uint64_t>(call.Number(1));
  const std::shared_ptr<GroupRun> run = GroupRun::Find(number);
  if (run == nullptr) return Internal("a compiled function finishes a group that has ended");
  Status status = run->Finish(description.place);
  const std::size_t bytes = call.Bytes(0);
  if (status.ok() && bytes > 0) {
    // Another address here means that XLA has copied the buffer while the engine was writing to it.
    if (run->OutputOf(description.place) != call.operands[0]) {
      status = Internal("XLA has moved the tensor '" + description.tensors[0].label +
                        "' during its reduction. This is an error of tf_smddp; use jit_compile=False");
    } else if (call.results[0] != call.operands[0]) {
      std::memcpy(call.results[0], call.operands[0], bytes);
    }
  }
  if (description.place + 1 == description.places) GroupRun::Forget(number);
  std::memcpy(call.results[1], &number, sizeof number);
  return status;
}

Status Run(Call& call) {
  const CallDescription& description = call.description;
  std::int64_t ticket = 0;
  Status status = TicketOf(call, &ticket);
  if (!status.ok()) return status;
  std::vector<Request> requests;
  for (std::size_t i = 0; i < description.tensors.size(); ++i) {
    Request request = description.MakeRequest(i, ticket);
    if (call.tensors() > 0) {
      request.input = call.operands[i];
      if (description.tensors[i].rows.empty()) {
        request.output = call.results[i];
      } else {
        request.allocate = ExpectRows(call, i);
      }
    }
    requests.push_back(std::move(request));
  }
  const auto run = std::make_shared<GroupRun>(call.engine, description.communicator, requests.size());
  call.SetToken(0);
  return run->Run(std::move(requests));
}

void Execute(Status (*run)(Call&), void* results, const void** operands, const char* text, std::size_t length,
             XlaCustomCallStatus* outcome) {
  Call call;
  call.operands = operands;
  call.results = static_cast<void**>(results);
  call.engine = GlobalEngine();
  Status status;
  if (call.engine == nullptr) {
    status = NotInitialized();
  } else if (!CallDescription::Parse(text, length, &call.description)) {
    status = Internal("a compiled function holds a call that tf_smddp did not write");
  } else {
    status = run(call);
  }
  if (status.ok()) return;
  // After an error XLA reuses all buffers of the program, also those of groups in other chains.
  GroupRun::WithdrawKept(status);
  SetCustomCallFailure(outcome, ValidUtf8(status.message()));
}

void TicketCall(void* results, const void** operands, const char* text, std::size_t length,
                XlaCustomCallStatus* outcome) {
  Execute(DrawTicket, results, operands, text, length, outcome);
}

void StartCall(void* results, const void** operands, const char* text, std::size_t length,
               XlaCustomCallStatus* outcome) {
  Execute(Start, results, operands, text, length, outcome);
}

void FinishCall(void* results, const void** operands, const char* text, std::size_t length,
                XlaCustomCallStatus* outcome) {
  Execute(Finish, results, operands, text, length, outcome);
}

void RunCall(void* results, const void** operands, const char* text, std::size_t length,
             XlaCustomCallStatus* outcome) {
  Execute(Run, results, operands, text, length, outcome);
}

XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kTicketCall, reinterpret_cast<void*>(TicketCall));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kStartCall, reinterpret_cast<void*>(StartCall));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kFinishCall, reinterpret_cast<void*>(FinishCall));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kRunCall, reinterpret_cast<void*>(RunCall));

}  // namespace
}  // namespace tf_smddp
