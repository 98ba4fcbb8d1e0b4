// The functions that programs for a GPU call.
//
// Place in the stack: between XLA's programs, which know the functions by name (custom_calls.h), and calls.h.
//
// All buffers lie in the GPU's memory. XLA runs a program by putting its kernels on a stream, one behind the
// other, from one thread. When it comes to a call, it calls us in that thread with the stream. The
// program's work until then may still be under way, and what we put on the stream, or have finished
// when we return, comes before the rest of the program. So a start is quick: our own streams wait for an
// event on XLA's stream. A finish, and a call that runs a whole collective, keep the thread until the results
// are in the GPU's memory. Meanwhile the GPU computes what is on the stream already. XLA's stream could wait
// in place of the thread. But after an error, such as another rank's death, the program would go on with a
// result that is not whole, and it has no call at its end that could report the error: its weights would be
// wrong, and could be saved.
//
// Note [Numbers of a GPU's program]: tickets and tokens are operands and results of the calls here as on a
// CPU, and so keep them in order. But their values are not in these buffers, which the host could only read
// after all of the computation before. One thread makes all calls of one execution of a program, one after
// the other, so the values are kept for that thread. The chain of calls has one group under way at a time, so
// a thread has one token. A ticket has a number of its own in the call's description, and is drawn before it
// is used. A ticket that a program brings along, such as a constant, has no number, and is read.
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <unordered_map>
#include <utility>

#include "kernels/tf/conversions.h"
#include "kernels/tf/gpu_tensors.h"
#include "kernels/tf/xla/calls.h"
#include "kernels/tf/xla/custom_calls.h"
#include "xla/service/custom_call_status.h"
#include "xla/service/custom_call_target_registry.h"

namespace tf_smddp {
namespace {

// Note [Numbers of a GPU's program].
struct Numbers {
  std::uint64_t token = 0;
  std::unordered_map<std::uint64_t, std::int64_t> tickets;  // by CallDescription::ticket_number
};
thread_local Numbers numbers;

class GpuMemory : public CallMemory {
 public:
  explicit GpuMemory(void* stream) : stream_(stream) {}

  Status SetBuffers(const void* input, void* output, Request* request, WhenWritten* when_written) override {
    std::shared_ptr<GpuTensors> tensors;
    Status status = GpuTensors::On(stream_, &tensors);
    if (status.ok()) status = tensors->Mark();
    if (!status.ok()) return status;
    request->input = tensors->Input(input);
    request->output = tensors->Output(output);
    *when_written = [tensors = std::move(tensors)](std::function<void(const Status&)> written) {
      tensors->WhenWritten(std::move(written));
    };
    return {};
  }

  Status Copy(const void* from, void* to, std::size_t bytes) override {
    std::shared_ptr<GpuTensors> tensors;
    const Status status = GpuTensors::On(stream_, &tensors);
    return status.ok() ? tensors->CopyInOrder(from, to, bytes) : status;
  }

  Status ReadTicket(const CallDescription& call, const void* operand, std::int64_t* ticket) override {
    if (call.ticket_number == 0) return ReadNow(operand, ticket);
    const auto found = numbers.tickets.find(call.ticket_number);
    if (found == numbers.tickets.end()) {
      return Internal("a compiled function uses a ticket that it has not drawn in this thread");
    }
    *ticket = found->second;
    return {};
  }
  void KeepTicket(const CallDescription& call, std::int64_t ticket, void*) override {
    numbers.tickets[call.ticket_number] = ticket;
  }

  std::uint64_t ReadToken(const void*) override { return numbers.token; }
  void KeepToken(std::uint64_t token, void*) override { numbers.token = token; }

 private:
  // Waits for all that the program has computed until now.
  Status ReadNow(const void* operand, std::int64_t* number) {
    std::shared_ptr<GpuTensors> tensors;
    Status status = GpuTensors::On(stream_, &tensors);
    if (status.ok()) status = tensors->Mark();
    if (!status.ok()) return status;
    std::promise<Status> read;
    const InputBuffer from = tensors->Input(operand);
    status = from.kind->CopyToHost(from.data, number, sizeof *number, from.stream,
                                   [&read](const Status& outcome) { read.set_value(outcome); });
    return status.ok() ? read.get_future().get() : status;
  }

  void* const stream_;
};

// `buffers`: of the operands, and then of the results.
template <CallKind kKind>
void GpuCall(void* stream, void** buffers, const char* text, std::size_t length,
             XlaCustomCallStatus* outcome) {
  GpuMemory memory(stream);
  const auto place = [&](XlaCall* call) {
    call->operands = buffers;
    call->results = buffers + call->OperandCount(kKind);
    call->memory = &memory;
    return Status();
  };
  ExecuteCall(kKind, text, length, place, outcome);
}

XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kTicketCall, reinterpret_cast<void*>(GpuCall<CallKind::kTicket>),
                                         "CUDA");
XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kBeginCall, reinterpret_cast<void*>(GpuCall<CallKind::kBegin>),
                                         "CUDA");
XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kStartCall, reinterpret_cast<void*>(GpuCall<CallKind::kStart>),
                                         "CUDA");
XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kFinishCall, reinterpret_cast<void*>(GpuCall<CallKind::kFinish>),
                                         "CUDA");
XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kRunCall, reinterpret_cast<void*>(GpuCall<CallKind::kRun>), "CUDA");
XLA_REGISTER_CUSTOM_CALL_TARGET_WITH_SYM(kPassCall, reinterpret_cast<void*>(GpuCall<CallKind::kPass>),
                                         "CUDA");

}  // namespace
}  // namespace tf_smddp
