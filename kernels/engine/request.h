// Request: one tensor's part in one collective, on one rank.
#ifndef TF_SMDDP_KERNELS_ENGINE_REQUEST_H_
#define TF_SMDDP_KERNELS_ENGINE_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/operation.h"
#include "kernels/common/status.h"
#include "kernels/common/types.h"
#include "kernels/control/manifest.h"
#include "kernels/memory/buffer.h"

namespace tf_smddp {

// Names a communicator: a group of ranks with tables and sequences of its own. The number is the same on all
// ranks of the job, and is never reused.
using CommunicatorId = std::uint32_t;

// The communicator of all ranks. It always exists.
inline constexpr CommunicatorId kWorld = 0;

// The communicator that its members make alone with key k has the number kFirstOfMembers + k. Those that all
// ranks of the job make have lower numbers.
inline constexpr CommunicatorId kFirstOfMembers = CommunicatorId{1} << 23;

// Says which requests of the ranks meet.
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

// Names a step: what runs together and fails together, such as a session's run or a function's call. Numbers
// are not reused.
using StepId = std::int64_t;

// The step of a request in eager execution: it has no step, and fails alone.
inline constexpr StepId kNoStep = 0;

// Called exactly once. The progress thread calls it only if Request::callback_is_trivial says so.
using DoneCallback = std::function<void(const Status&)>;

// Allocates an output whose shape is known only when all ranks have arrived. `rows` is how many rows of the
// output come from each rank of the communicator, in their order (kReducescatter: one element, the rows of
// this rank's shard); the output's first dimension is their sum. Sets *output, the address in memory of the
// kind of Request::output, which may stay nullptr when there are no bytes. Called before `done`, on the
// progress thread (in Submit, in a job of one rank): it must return quickly, and must not call the engine. It
// is called once, but after the error kNoMemoryNow again and again, for kMemoryPatience. An error fails the
// request on all ranks.
using AllocateOutput = std::function<Status(const std::vector<std::int64_t>& rows, void** output)>;
inline constexpr std::chrono::seconds kMemoryPatience{10};  // that of TensorFlow's allocators
inline constexpr std::chrono::milliseconds kMemoryPause{1};

// The kind of caller of Engine::SubmitAndProgress.
enum class Caller {
  kBlocking,     // it has nothing to do until its requests have ended
  kNonBlocking,  // it has other work: it drives the progress for some hundred microseconds at most
};

struct Request {
  CommunicatorId communicator = kWorld;
  Operation operation;
  std::vector<std::int64_t> shape;  // of the input, elements; equal on all ranks, but for the first dimension
                                    // of kAllgather and kAlltoall
  std::vector<std::int64_t>
      splits;         // kAlltoall: rows for each rank of the communicator; their sum is shape[0]
  InputBuffer input;  // its address may be nullptr when there are no bytes
  Buffer output;      // kAllreduce, kBroadcast: its address may be that of `input`, else must not overlap it
  AllocateOutput allocate;  // kAllgather, kReducescatter, kAlltoall: instead of the address of `output`
  Pairing pairing;
  StepId step = kNoStep;
  std::string label;  // for messages; may differ between ranks
  Meaning meaning;    // may not differ
  // The job ends if it waits so long for other ranks; 0: see StallWatch. May differ.
  std::chrono::nanoseconds timeout{0};
  DoneCallback done;
  // `done` only records a success: it runs no code of the user, and nothing that waits. So the progress
  // thread may call it.
  bool callback_is_trivial = false;
  // Its caller submits nothing else before it has ended, so on one host it seals its batch at once.
  bool seals_at_once = false;
  // It is submitted inside of Engine::SubmitAndProgress: the caller drives the progress, and the progress
  // thread is not woken.
  bool caller_progresses = false;
};

inline std::uint64_t InputBytes(const Request& request) {
  std::uint64_t bytes = DTypeBytes(request.operation.dtype);
  for (const std::int64_t dim : request.shape) bytes *= static_cast<std::uint64_t>(dim);
  return bytes;
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_REQUEST_H_
