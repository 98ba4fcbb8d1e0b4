// Request: one tensor's part in one collective, on one rank.
#ifndef TF_SMDDP_KERNELS_ENGINE_REQUEST_H_
#define TF_SMDDP_KERNELS_ENGINE_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/operation.h"
#include "kernels/common/status.h"
#include "kernels/common/types.h"

namespace tf_smddp {

// A group of ranks with tables and sequences of its own. The same number on all ranks of the job, and never
// that of another in its life.
using CommunicatorId = std::uint32_t;

// The communicator of all ranks; it always exists.
inline constexpr CommunicatorId kWorld = 0;

// Which request of this rank meets which of the others'.
struct Pairing {
  enum Kind {
    kGroup,      // by the group's ticket and the index in the group
    kSequence,   // the n-th such request of one rank meets the n-th of the others
    kOutOfBand,  // likewise, in a sequence of its own
    kName,       // the n-th request of this name meets the n-th of that name
  };
  Kind kind = kSequence;
  std::uint64_t ticket = 0;       // kGroup: from Engine::DrawTicket
  std::uint32_t param_index = 0;  // kGroup: below num_params
  std::uint32_t num_params = 0;   // kGroup: tensors in the group
  std::string name;               // kName: at most one request of a name may be under way on a rank
};

// What runs together and fails together: a session's run or a function's call. No two have the same number.
using StepId = std::int64_t;

// Eager execution: each request stands for itself.
inline constexpr StepId kNoStep = 0;

// Called exactly once; on the comm thread, or whoever stands in for it, only where it is quick (Request).
using DoneCallback = std::function<void(const Status&)>;

// Makes room for an output whose shape only the meeting of all ranks settles. `rows` is how many rows of the
// output come from each rank of the communicator, in their order (kReducescatter: one element, the rows of
// this rank's shard); the output's first dimension is their sum. Sets *output, which may stay nullptr when
// there are no bytes. Called at most once, before `done`, on the comm thread (in Submit, in a job of one
// rank): it must be quick, and must not call the engine. An error fails the request on all ranks.
using AllocateOutput = std::function<Status(const std::vector<std::int64_t>& rows, void** output)>;

// What the caller of Engine::Assist does next.
enum class Caller {
  kWaits,   // nothing, until its requests have ended
  kGoesOn,  // something else: it stays for some microseconds, or a batch that begins then, while that pays
};

struct Request {
  CommunicatorId communicator = kWorld;
  Operation operation;
  std::vector<std::int64_t> shape;  // of the input, elements; equal on all ranks, but for the first dimension
                                    // of kAllgather and kAlltoall
  std::vector<std::int64_t>
      splits;                   // kAlltoall: rows for each rank of the communicator; their sum is shape[0]
  const void* input = nullptr;  // may be nullptr when there are no bytes
  void* output = nullptr;       // kAllreduce, kBroadcast: may be equal to `input`, else must not overlap it
  AllocateOutput allocate;      // kAllgather, kReducescatter, kAlltoall: instead of `output`
  Pairing pairing;
  StepId step = kNoStep;
  std::string label;  // for messages; may differ between ranks
  DoneCallback done;
  // `done`, given a success, only takes note of it: it runs nothing of the user's, and nothing that waits. So
  // it need not have a thread of its own.
  bool quick = false;
  // Its caller submits nothing else before it has ended: a batch need not wait for more.
  bool alone = false;
  // Submitted inside of Engine::Assist: the caller looks after it, and the comm thread is not woken.
  bool assisted = false;
};

inline std::uint64_t InputBytes(const Request& request) {
  std::uint64_t bytes = DTypeBytes(request.operation.dtype);
  for (const std::int64_t dim : request.shape) bytes *= static_cast<std::uint64_t>(dim);
  return bytes;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_REQUEST_H_
