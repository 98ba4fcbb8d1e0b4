// The calls of NCCL that do what a request asks for. This is pure: no memory is touched, and nothing is
// called (nccl_communicator.h does that).
//
// Each collective, where N ranks take part, each brings B bytes, and a row is never cut:
//   allreduce      ncclAllReduce.
//   broadcast      ncclBroadcast.
//   allgather      ncclAllGather, if all bring the same number of rows; else an ncclBroadcast from each. A
//                  broadcast sends each byte once over each link of the ring. Sends to each of the others
//                  would take as many bytes in all, but each rank's link to other hosts would carry its part
//                  N - 1 times, and each pair of ranks would need a connection.
//   reducescatter  ncclReduceScatter, if the rows divide evenly; else an ncclReduce to each rank, of its
//                  rows.
//   alltoall       an ncclSend to, and an ncclRecv from, each rank, itself too.
//   barrier        none.
// Parts without elements are left out, on all ranks, since all know all sizes. All calls of a batch go into
// one group: so those of one request run beside each other, and NCCL launches as few kernels as it can.
//
// Tensors that are only moved are counted in bytes, so they may have any type. A reduction needs a type of
// NCCL: complex numbers are added as twice as many real ones, and bool, whose elements are 0 or 1, is an
// integer.
//
// Results differ from those of kernels/reduce in rounding alone: NCCL chooses the order of the ranks, rounds
// 16-bit floats after each step, and multiplies each input by a factor that is rounded to the type; 1/N is
// one in an average. They are equal on all ranks, and exact where nothing is rounded. Results
// that would differ otherwise are not supported: see Support.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_CALLS_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_CALLS_H_

#include <cstdint>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/collectives/collective.h"
#include "kernels/common/operation.h"
#include "kernels/common/rank_id.h"

namespace tf_smddp::nccl {

// Whether NCCL does what an operation asks for, or why not.
enum class Support {
  kYes,
  kNoType,     // it has no such type: 16-bit integers
  kNoOp,       // it has no such op for the type, or we define none: the product of complex numbers
  kNoAverage,  // ours of integers is that of the exact sum; NCCL's sum wraps around
  kNoNan,      // our smallest and largest float hand a NaN on; NCCL's drop it
  kNoFactor,   // it has factors for sums alone, and only those that are normal numbers of the type
};

// The same on all ranks that take part, whose number is `num_ranks`. Any thread.
Support SupportOf(const Operation& operation, int num_ranks);

// One call. The addresses are those of a device.
struct NcclCall {
  enum class Function { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kReceive };

  Function function = Function::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint64_t count = 0;          // of elements, as NCCL counts them for the function
  DataType type = DataType::kInt8;  // in which it is reduced
  bool compressed = false;          // the elements in memory are float32, and of `type` on their way
  int peer = 0;                     // the root, or the rank at the other end
  Op op = kSum;                     // if it reduces and is not scaled
  bool scaled = false;              // adds what was multiplied by `scalar`
  std::uint64_t scalar{};           // ScalarOf (nccl_calls.h)
};

// The most calls that a rank has for such a call; the same on all ranks.
std::uint64_t MostCalls(const Call& call);

// Appends the calls for participant `self` of a call that SupportOf supports. Where `compresses`, an
// allreduce is compressed as its operation says, if the format holds its factor; the same on all ranks.
// NCCL's ranks are the participants: all ranks of the communicator take part. `input` and `output` are the
// starts of its whole tensors, InputCount and OutputCount elements long; they may be equal for allreduce and
// broadcast, and must not overlap otherwise.
void AppendCalls(const Call& call, ParticipantId self, const void* input, void* output,
                 std::vector<NcclCall>* calls, bool compresses = false);

// A factor as NCCL takes it, rounded to the type of the elements that it multiplies.
// Sets the first bytes of *bits to `value`, rounded to nearest even. Returns false, and leaves *bits alone,
// if it is neither zero nor a normal number there, so that rounding would take more than the last place; and
// for integers.
bool ScalarOf(DataType type, double value, std::uint64_t* bits);

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_CALLS_H_
