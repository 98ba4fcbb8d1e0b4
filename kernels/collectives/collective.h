// Collective: what one collective does to memory. Each has its own file: allreduce.cc, broadcast.cc, …
//
// Place in the stack: above reduce/. There are no threads, no waiting, and no shared state except the data;
// backends/ and kernels/engine decide which thread calls what, and when. CONTRIBUTING.md says how to add a
// collective.
//
// Words: *participants* are the ranks that take part in a request, counted from 0 to num_ranks - 1
// (rank_id.h). A *row* is what one index of the first dimension holds. A *chunk* is the piece of work that
// one thread does at a time; a *window* is a piece of shared memory, as large as a chunk, that one
// participant writes.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/collectives/shard.h"
#include "kernels/common/collective_info.h"
#include "kernels/common/operation.h"
#include "kernels/common/status.h"
#include "kernels/common/types.h"

namespace tf_smddp {

// A request as the data plane sees it. It is the same on all ranks.
struct Call {
  Operation operation;
  int num_ranks = 1;
  ParticipantId root;               // for collectives that have a root; may be none for kReducescatter
  std::uint64_t num_rows = 0;       // of each input, where they are all equal
  std::uint64_t row_count = 1;      // elements of a row
  std::vector<std::uint64_t> rows;  // where the rows may differ: those of each participant's input
  // Where there are splits, by sender: the rows for each participant. For a sender on another host only the
  // rows for this rank are known, and are alone in its vector.
  std::vector<std::vector<std::uint64_t>> splits;

  std::uint64_t count() const { return num_rows * row_count; }

  // The rows that `sender` sends to `receiver`, where there are splits.
  std::uint64_t SplitRows(ParticipantId sender, ParticipantId receiver) const {
    const std::vector<std::uint64_t>& rows = splits[sender.index()];
    return AllSplitsKnown(sender) ? rows[receiver.index()] : rows.front();
  }
  bool AllSplitsKnown(ParticipantId sender) const {
    return splits[sender.index()].size() == static_cast<std::size_t>(num_ranks);
  }
};

// The arguments of a request on this rank, apart from the memory.
struct Arguments {
  const Operation& operation;
  const std::vector<std::int64_t>& shape;   // of the input
  const std::vector<std::int64_t>& splits;  // rows for each rank, where the collective has splits
  const std::vector<int>& ranks;            // of the job, ascending: the communicator's
};

// One participant's part of one chunk on the staged path.
struct StagedChunk {
  ParticipantId self;
  std::uint64_t index;        // of the chunk, below NumChunks
  std::uint64_t capacity;     // of a window, in elements; at least num_ranks
  const std::byte* input;     // its whole input, which the other ranks cannot read
  std::byte* output;          // its whole output; may be equal to `input` if the request's may
  std::byte* const* windows;  // of all participants, which all of them can read
};

class Collective {
 public:
  virtual ~Collective() = default;

  // The outputs that one call of Direct writes.
  enum class Reach {
    kAllOutputs,  // those of all participants, so any of them can do any part. The outputs must be in shared
                  // memory, and have the shape of the inputs.
    kOwnOutput,   // that of the caller, which may be private, and has a shape of its own
  };
  virtual Reach reach() const = 0;

  // Checks whether a request with these arguments can be run. The default checks what follows from the
  // collective's traits: that the op and the factors are defined for the type, that a root is in the
  // communicator, and that there are rows where the output is made of rows. Errors: InvalidArgument.
  virtual Status Check(const Arguments& arguments) const;

  // The elements of a participant's input and output.
  virtual std::uint64_t InputCount(const Call& call, ParticipantId participant) const;
  virtual std::uint64_t OutputCount(const Call& call, ParticipantId participant) const;

  // The elements of `sender`'s input from which `receiver` makes its output. The default is all of them.
  virtual Shard PartFor(const Call& call, ParticipantId sender, ParticipantId receiver) const;

  // The rows of a participant's output, in parts by where they come from (see AllocateOutput in
  // kernels/engine/request.h). For kOwnOutput only.
  virtual std::vector<std::int64_t> OutputRows(const Call& call, ParticipantId participant) const;

  // The direct path, for inputs that are all in memory that this process can reach. Makes elements [begin,
  // begin + count) of the outputs that reach() names. inputs[p] and outputs[p] are the starts of participant
  // p's whole tensors. With kAllOutputs, outputs[p] may be equal to inputs[p], and is nullptr for a
  // participant of another host, whose output that host makes; with kOwnOutput, only outputs[self] is used.
  // Chunks of one request may run at once, in any process, since they write disjoint elements.
  virtual void Direct(const Call& call, ParticipantId self, const void* const* inputs, void* const* outputs,
                      std::uint64_t begin, std::uint64_t count) const = 0;

  // The staged path has three steps, which every participant does for every chunk. Each step follows when all
  // participants have done the one before for this chunk.
  //   StageIn   writes to the own window what others need
  //   Combine   reads all windows, and writes this participant's share to the own window and output
  //   StageOut  reads the windows, and writes to the own output
  virtual std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const = 0;
  virtual void StageIn(const Call& call, const StagedChunk& chunk) const = 0;
  virtual void Combine(const Call& call, const StagedChunk& chunk) const = 0;
  virtual void StageOut(const Call& call, const StagedChunk& chunk) const = 0;
};

// Returns the collective of this kind, which lives for ever. Any thread.
const Collective& FindCollective(CollectiveKind kind);

// AllreduceCollective(), BroadcastCollective() and so on: all of them, each in its own file.
#define TF_SMDDP_DECLARATION(enumerator, name, data_plane, ...) const Collective& data_plane##Collective();
TF_SMDDP_COLLECTIVES(TF_SMDDP_DECLARATION)
#undef TF_SMDDP_DECLARATION

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_COLLECTIVE_H_
