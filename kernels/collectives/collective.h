// Collective: what one collective does to memory. One file each: allreduce.cc, broadcast.cc, …
//
// Place in the stack: above reduce/. No threads, no waiting, no shared state but the data: who calls what
// when is the business of backends/ and of kernels/engine. To add a collective: a CollectiveKind, a file
// here, a line in collective.cc.
//
// Words: ranks are counted among those that take part, 0 to num_ranks - 1. A *row* is what one index of the
// first dimension holds. A *chunk* is a piece of work that one thread does at a time; a *window* is a
// chunk-sized piece of a rank's shared memory.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/common/types.h"

namespace tf_smddp {

// A request as the data plane sees it; the same on all ranks.
struct Call {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int num_ranks = 1;
  int root = -1;                // for collectives that have one
  std::uint64_t num_rows = 0;   // of each rank's input, unless they may differ
  std::uint64_t row_count = 1;  // elements of a row
  std::vector<std::uint64_t>
      rows;  // kAllgather: by rank, of its input; kAlltoall: by sender * num_ranks + receiver

  std::uint64_t count() const { return num_rows * row_count; }
};

// One rank's part of one chunk on the staged path.
struct StagedChunk {
  int rank;
  std::uint64_t index;        // of the chunk, below NumChunks
  std::uint64_t capacity;     // elements that a window holds; at least num_ranks
  const std::byte* input;     // this rank's whole tensor; nobody else can read it
  std::byte* output;          // likewise; may be equal to `input` where the engine's request may be so
  std::byte* const* windows;  // by rank: shared
};

class Collective {
 public:
  virtual ~Collective() = default;

  // Whose outputs one call of Direct writes.
  enum class Reach {
    kAllOutputs,  // everybody's, so any rank can do any part; outputs must be in shared memory, and have the
                  // shape of the inputs
    kOwnOutput,   // its own, which may be private, and has a shape of its own
  };
  virtual Reach reach() const = 0;

  // Elements of rank `rank`'s input, and output.
  virtual std::uint64_t InputCount(const Call& call, int rank) const;
  virtual std::uint64_t OutputCount(const Call& call, int rank) const;

  // Rows of rank `rank`'s output, by where they come from (see AllocateOutput in kernels/engine/request.h).
  // For kOwnOutput only.
  virtual std::vector<std::int64_t> OutputRows(const Call& call, int rank) const;

  // Without staging: all inputs are in memory that this process can reach. Makes elements [begin, begin +
  // count) of the outputs that reach() says. inputs[r] and outputs[r] are the starts of rank r's whole
  // tensors; with kOwnOutput only outputs[rank] is used. With kAllOutputs outputs[r] may be equal to
  // inputs[r]. Chunks of one request may run at once, in any process, since they write disjoint elements.
  virtual void Direct(const Call& call, int rank, const void* const* inputs, void* const* outputs,
                      std::uint64_t begin, std::uint64_t count) const = 0;

  // Likewise, for little data: makes all of one rank's output from all inputs, of which `output` may be one.
  // For kAllOutputs, and where there are bytes, only.
  virtual void DirectOwn(const Call& call, const void* const* inputs, void* output) const;

  // The staged path: three steps that every rank does for every chunk, each after all ranks have done the one
  // before for this chunk. StageIn: put into the own window what others need. Combine: read all windows,
  // write to the own window and output, in the elements that are this rank's share. StageOut: read the
  // windows, write to the own output.
  virtual std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const = 0;
  virtual void StageIn(const Call& call, const StagedChunk& chunk) const = 0;
  virtual void Combine(const Call& call, const StagedChunk& chunk) const = 0;
  virtual void StageOut(const Call& call, const StagedChunk& chunk) const = 0;
};

// The one of this kind. Lives for ever; any thread.
const Collective& FindCollective(CollectiveKind kind);

// All of them, each in its own file.
const Collective& AllgatherCollective();
const Collective& AllreduceCollective();
const Collective& AlltoallCollective();
const Collective& BarrierCollective();
const Collective& BroadcastCollective();
const Collective& ReducescatterCollective();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_
