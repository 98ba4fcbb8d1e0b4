// The functions that programs for a CPU call.
//
// Place in the stack: between XLA's programs, which know the functions by name (custom_calls.h), and calls.h.
// All buffers lie in the host's memory. A call has everything that it reads, and leaves everything that it
// writes, at its return.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tf/xla/calls.h"
#include "kernels/tf/xla/custom_calls.h"
#include "xla/service/custom_call_status.h"
#include "xla/service/custom_call_target_registry.h"

namespace tf_smddp {
namespace {

class CpuMemory : public CallMemory {
 public:
  Status SetBuffers(const void* input, void* output, Request* request, WhenWritten*) override {
    request->input = input;
    request->output = output;
    return {};
  }
  Status Copy(const void* from, void* to, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status ReadTicket(const CallDescription&, const void* operand, std::int64_t* ticket) override {
    std::memcpy(ticket, operand, sizeof *ticket);
    return {};
  }
  void KeepTicket(const CallDescription&, std::int64_t ticket, void* result) override {
    std::memcpy(result, &ticket, sizeof ticket);
  }
  std::uint64_t ReadToken(const void* operand) override {
    std::uint64_t token;
    std::memcpy(&token, operand, sizeof token);
    return token;
  }
  void KeepToken(std::uint64_t token, void* result) override { std::memcpy(result, &token, sizeof token); }
};

template <CallKind kKind>
void CpuCall(void* results, const void** operands, const char* text, std::size_t length,
             XlaCustomCallStatus* outcome) {
  CpuMemory memory;
  const auto place = [&](XlaCall* call) {
    call->operands = operands;
    // `results` is the buffer itself of the one call that returns no tuple.
    call->results = kKind == CallKind::kBegin ? &results : static_cast<void**>(results);
    call->memory = &memory;
    return Status();
  };
  ExecuteCall(kKind, text, length, place, outcome);
}

XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kTicketCall,
                                             reinterpret_cast<void*>(CpuCall<CallKind::kTicket>));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kBeginCall, reinterpret_cast<void*>(CpuCall<CallKind::kBegin>));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kStartCall, reinterpret_cast<void*>(CpuCall<CallKind::kStart>));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kFinishCall,
                                             reinterpret_cast<void*>(CpuCall<CallKind::kFinish>));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kRunCall, reinterpret_cast<void*>(CpuCall<CallKind::kRun>));
XLA_CPU_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kPassCall, reinterpret_cast<void*>(CpuCall<CallKind::kPass>));

}  // namespace
}  // namespace tf_smddp
