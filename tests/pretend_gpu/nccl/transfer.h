// Which elements a call sends, and what it makes of those that it receives.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TRANSFER_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tests/pretend_gpu/extension.h"
#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/meeting.h"
#include "tests/pretend_gpu/nccl/operation.h"

namespace pretend_gpu::nccl {

// How many elements a rank sends and receives in a call. Zero: the buffer is not looked at.
struct Counts {
  std::uint64_t sent;
  std::uint64_t received;
};
Counts CountsOf(const Operation& operation, int rank, int ranks);

// One call of a launch, with its buffers as streams find them.
struct Part {
  Operation operation;
  Counts counts;
  Memory send, receive;
  std::optional<PreMulSum> pre_mul_sum;
  Memory scalar;  // its scalar, if that is on the device
  Seat seat;
  int calls;   // so many the launch has
  bool fails;  // as settings.h asks
};

// On the stream's thread:

// Puts what the call sends into the outbox, multiplied as the op asks; returns its offset.
std::uint64_t PutSent(Communicator& communicator, const Part& part);

// The buffer's contents are undefined from now on until TakeReceived.
void PoisonReceived(const Part& part);

// Writes the result. Only after Meet.
void TakeReceived(Communicator& communicator, const Part& part);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_TRANSFER_H_
