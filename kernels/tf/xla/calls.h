// The calls that compiled programs make: they draw a ticket, begin a group, start one tensor of it, finish
// the tensor, run a whole collective, or only pass on the chain's token.
//
// Place in the stack: above group_run.h. Below it are the functions whose addresses XLA has, which differ
// between a CPU and a GPU in where the buffers lie: cpu_calls.cc, gpu_calls.cc. The names and the operands of
// the calls are in custom_calls.h.
#ifndef TF_SMDDP_KERNELS_TF_XLA_CALLS_H_
#define TF_SMDDP_KERNELS_TF_XLA_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/tf/xla/call_description.h"
#include "kernels/tf/xla/group_run.h"

struct XlaCustomCallStatus_;

namespace tf_smddp {

enum class CallKind { kTicket, kBegin, kStart, kFinish, kRun, kPass };

// The part that differs between devices. A call has one, and makes it anew.
class CallMemory {
 public:
  virtual ~CallMemory() = default;

  // Sets the buffers of `request`: the tensor at `input`, which the program has computed, and the result's
  // place at `output`. `output` is nullptr if Request::allocate says where it is. Sets *when_written as
  // GroupRun wants it.
  virtual Status SetBuffers(const void* input, void* output, Request* request, WhenWritten* when_written) = 0;

  // Copies a tensor, behind what the program has computed and before what it computes next.
  virtual Status Copy(const void* from, void* to, std::size_t bytes) = 0;

  // Reads the ticket of a call, which is the operand at `operand`.
  virtual Status ReadTicket(const CallDescription& call, const void* operand, std::int64_t* ticket) = 0;
  // Keeps a ticket for the calls that use it. `result` is the result that these calls have as their operand.
  virtual void KeepTicket(const CallDescription& call, std::int64_t ticket, void* result) = 0;

  // The number of the group's run (GroupRun::Keep), likewise: the token that our calls pass on.
  virtual std::uint64_t ReadToken(const void* operand) = 0;
  virtual void KeepToken(std::uint64_t token, void* result) = 0;
};

// One call: its description and its buffers.
struct XlaCall {
  CallDescription description;
  const void* const* operands = nullptr;
  void* const* results = nullptr;
  CallMemory* memory = nullptr;
  std::shared_ptr<Engine> engine;

  // How many tensors a kRun call has.
  std::size_t tensors() const;
  // How many operands a call of this kind has.
  std::size_t OperandCount(CallKind kind) const;
};

// Executes a call, whose description XLA has kept as a text. `place` is given the call with its description,
// and sets `operands`, `results` and `memory`. After an error, which *outcome tells XLA, no request of a
// compiled program in this process is pending.
void ExecuteCall(CallKind kind, const char* text, std::size_t length,
                 const std::function<Status(XlaCall*)>& place, XlaCustomCallStatus_* outcome);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_CALLS_H_
