// Reduce-scatter: the reduction of all inputs is cut by rows, and participant p gets shard p (EvenShardOf).
// If the call has a root, the root gets all rows. The inputs are added in the order of the participants, so a
// shard is bitwise what an allreduce gives there.
//
// Direct: each participant makes its own output, from its range of the N inputs. It reads 1/N of the tensor N
// times, and writes 1/N of it.
//
// Staged: a chunk has a piece of every shard, capacity / N elements of each, so that all participants have
// work in every chunk. A window is cut into N sub-windows of that length. With a root, a chunk has `capacity`
// elements, and a window is not cut.
//   StageIn  copies the pieces of the other participants' shards of the own input into the own window
//   Combine  reduces the own piece, from the other windows and the own input, into the own output
// Each participant copies (N-1)/N of its tensor in, and for 1/N of it there are N reads and one write. Shards
// that are a row longer may need one chunk more, in which the others have nothing to do.
#include <algorithm>
#include <cstring>

#include "kernels/collectives/addresses.h"
#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"
#include "kernels/common/config.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

Shard RowsOf(const Call& call, ParticipantId participant) {
  if (call.root.valid()) return {0, participant == call.root ? call.num_rows : 0};
  return EvenShardOf(call.num_rows, call.num_ranks, participant.value());
}

// The elements of a participant's shard.
Shard ElementsOf(const Call& call, ParticipantId participant) {
  const Shard rows = RowsOf(call, participant);
  return {rows.begin * call.row_count, rows.count * call.row_count};
}

class Reducescatter final : public Collective {
 public:
  Reach reach() const override { return Reach::kOwnOutput; }

  std::uint64_t OutputCount(const Call& call, ParticipantId participant) const override {
    return ElementsOf(call, participant).count;
  }

  Shard PartFor(const Call& call, ParticipantId, ParticipantId receiver) const override {
    return ElementsOf(call, receiver);
  }

  std::vector<std::int64_t> OutputRows(const Call& call, ParticipantId participant) const override {
    return {static_cast<std::int64_t>(RowsOf(call, participant).count)};
  }

  void Direct(const Call& call, ParticipantId self, const void* const* inputs, void* const* outputs,
              std::uint64_t begin, std::uint64_t count) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    const std::uint64_t offset = (ElementsOf(call, self).begin + begin) * element_bytes;
    Addresses from(call.num_ranks);
    for (int each = 0; each < call.num_ranks; ++each) {
      from[each] = static_cast<const std::byte*>(inputs[each]) + offset;
    }
    void* to = static_cast<std::byte*>(outputs[self.index()]) + begin * element_bytes;
    Reduce({call.operation.dtype, call.operation.op, call.operation.prescale, call.operation.postscale},
           from.data(), call.num_ranks, &to, 1, count);
  }

  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override {
    const std::uint64_t piece = PieceCount(call, capacity);
    const ParticipantId longest = call.root.valid() ? call.root : ParticipantId(0);
    return (ElementsOf(call, longest).count + piece - 1) / piece;
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    for (const ParticipantId owner : FirstIds<ParticipantId>(call.num_ranks)) {
      const Shard piece = PieceOf(call, chunk, owner);
      if (owner == chunk.self || piece.count == 0) continue;
      std::memcpy(chunk.windows[chunk.self.index()] + SubWindow(call, chunk, owner),
                  chunk.input + piece.begin * element_bytes, piece.count * element_bytes);
    }
  }

  void Combine(const Call& call, const StagedChunk& chunk) const override {
    const Shard piece = PieceOf(call, chunk, chunk.self);
    if (piece.count == 0) return;
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    const void* from[kMaxLocalRanks];
    for (const ParticipantId each : FirstIds<ParticipantId>(call.num_ranks)) {
      from[each.index()] = each == chunk.self
                               ? chunk.input + piece.begin * element_bytes
                               : chunk.windows[each.index()] + SubWindow(call, chunk, chunk.self);
    }
    void* to = chunk.output + (piece.begin - ElementsOf(call, chunk.self).begin) * element_bytes;
    Reduce({call.operation.dtype, call.operation.op, call.operation.prescale, call.operation.postscale}, from,
           call.num_ranks, &to, 1, piece.count);
  }

  void StageOut(const Call&, const StagedChunk&) const override {}

 private:
  static std::uint64_t PieceCount(const Call& call, std::uint64_t capacity) {
    return call.root.valid() ? capacity : capacity / static_cast<std::uint64_t>(call.num_ranks);
  }

  // Returns the elements of `owner`'s shard that are in this chunk.
  static Shard PieceOf(const Call& call, const StagedChunk& chunk, ParticipantId owner) {
    const Shard shard = ElementsOf(call, owner);
    const std::uint64_t piece = PieceCount(call, chunk.capacity);
    const std::uint64_t begin = std::min(shard.count, chunk.index * piece);
    return {shard.begin + begin, std::min(piece, shard.count - begin)};
  }

  // Returns the byte of a window at which the piece of `owner`'s shard begins.
  static std::uint64_t SubWindow(const Call& call, const StagedChunk& chunk, ParticipantId owner) {
    if (call.root.valid()) return 0;
    return owner.index() * PieceCount(call, chunk.capacity) * DTypeBytes(call.operation.dtype);
  }
};

}  // namespace

const Collective& ReducescatterCollective() {
  static const Reducescatter reducescatter;
  return reducescatter;
}

}  // namespace tf_smddp
