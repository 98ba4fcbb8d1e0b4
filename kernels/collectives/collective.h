// Collective: what one collective does to memory. One file each: allreduce.cc, broadcast.cc, barrier.cc.
//
// Place in the stack: above reduce/. No threads, no waiting, no shared state but the data: who calls what
// when is the business of backends/ and of kernels/engine. To add a collective: a CollectiveKind, a file
// here, a line in collective.cc.
//
// Words: a *chunk* is a range of elements that one thread works on at a time; a *window* is a chunk-sized
// piece of a rank's staging reserve.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/types.h"

namespace tf_smddp {

// A request as the data plane sees it; the same on all ranks.
struct Call {
  CollectiveKind kind;
  DType dtype;
  ReduceOp op;
  int root;  // a rank, for collectives that have one
  int num_ranks;
  std::uint64_t count;  // elements
};

// One rank's part of one chunk on the staged path.
struct StagedChunk {
  int rank;
  std::uint64_t count;        // elements in the chunk
  const std::byte* input;     // this rank's own memory, at the chunk; nobody else can read it
  std::byte* output;          // likewise; may be equal to `input`
  std::byte* const* windows;  // by rank: shared
};

class Collective {
 public:
  virtual ~Collective() = default;

  // Zero-copy. Does elements [begin, begin + count) for all ranks: inputs[r] and outputs[r] are the starts of
  // rank r's whole tensors, in memory that this process can reach; outputs[r] may be equal to inputs[r].
  // Chunks of one request may run at once, in any process, since they touch disjoint elements.
  virtual void Direct(const Call& call, const void* const* inputs, void* const* outputs, std::uint64_t begin,
                      std::uint64_t count) const = 0;

  // The staged path: three steps that every rank does for every chunk, each after all ranks have done the one
  // before for this chunk. StageIn: put into the own window what others need. Combine: read all windows,
  // write to the own window and output, in the elements that are this rank's share. StageOut: read the other
  // ranks' windows, write to the own output.
  virtual void StageIn(const Call& call, const StagedChunk& chunk) const = 0;
  virtual void Combine(const Call& call, const StagedChunk& chunk) const = 0;
  virtual void StageOut(const Call& call, const StagedChunk& chunk) const = 0;
};

// The one of this kind. Lives for ever; any thread.
const Collective& FindCollective(CollectiveKind kind);

// The three of them, each in its own file.
const Collective& AllreduceCollective();
const Collective& BroadcastCollective();
const Collective& BarrierCollective();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_
