// Reduce-scatter: the reduction of all ranks' inputs, cut by rows: rank r gets shard r (EvenShardOf). Added
// in rank order, so bitwise what an allreduce gives there.
//
// Direct, per range of the own shard: read the N inputs, write the own output. Per rank: N reads of 1/N of
// the tensor, one write of 1/N.
//
// Staged: a chunk has a piece of every shard, capacity / N elements of each, so that all ranks have work in
// every chunk; a window is cut into N sub-windows of that length.
//   StageIn  copies the pieces of the other ranks' shards of the own input into the own window
//   Combine  reduces the own piece, from the other windows and the own input, into the own output
// Per rank and byte of tensor: (N-1)/N copied in, N reads and one write for 1/N of it. Shards that are a row
// longer may need one chunk more; the others have nothing to do in it.
#include <algorithm>
#include <cstring>

#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"
#include "kernels/common/config.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

// Elements of rank `rank`'s shard.
Shard ElementsOf(const Call& call, int rank) {
  const Shard rows = EvenShardOf(call.num_rows, call.num_ranks, rank);
  return {rows.begin * call.row_count, rows.count * call.row_count};
}

class Reducescatter final : public Collective {
 public:
  Reach reach() const override { return Reach::kOwnOutput; }

  std::uint64_t OutputCount(const Call& call, int rank) const override {
    return ElementsOf(call, rank).count;
  }

  std::vector<std::int64_t> OutputRows(const Call& call, int rank) const override {
    return {static_cast<std::int64_t>(EvenShardOf(call.num_rows, call.num_ranks, rank).count)};
  }

  void Direct(const Call& call, int rank, const void* const* inputs, void* const* outputs,
              std::uint64_t begin, std::uint64_t count) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    const std::uint64_t offset = (ElementsOf(call, rank).begin + begin) * element_bytes;
    const void* from[kMaxLocalRanks];
    for (int r = 0; r < call.num_ranks; ++r) from[r] = static_cast<const std::byte*>(inputs[r]) + offset;
    void* to = static_cast<std::byte*>(outputs[rank]) + begin * element_bytes;
    Reduce({call.dtype, call.op, call.prescale, call.postscale}, from, call.num_ranks, &to, 1, count);
  }

  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override {
    const std::uint64_t piece = PieceCount(call, capacity);
    return (ElementsOf(call, 0).count + piece - 1) / piece;  // rank 0's shard is the longest
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    for (int owner = 0; owner < call.num_ranks; ++owner) {
      const Shard piece = PieceOf(call, chunk, owner);
      if (owner == chunk.rank || piece.count == 0) continue;
      std::memcpy(chunk.windows[chunk.rank] + SubWindow(call, chunk, owner),
                  chunk.input + piece.begin * element_bytes, piece.count * element_bytes);
    }
  }

  void Combine(const Call& call, const StagedChunk& chunk) const override {
    const Shard piece = PieceOf(call, chunk, chunk.rank);
    if (piece.count == 0) return;
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    const void* from[kMaxLocalRanks];
    for (int r = 0; r < call.num_ranks; ++r) {
      from[r] = r == chunk.rank ? chunk.input + piece.begin * element_bytes
                                : chunk.windows[r] + SubWindow(call, chunk, chunk.rank);
    }
    void* to = chunk.output + (piece.begin - ElementsOf(call, chunk.rank).begin) * element_bytes;
    Reduce({call.dtype, call.op, call.prescale, call.postscale}, from, call.num_ranks, &to, 1, piece.count);
  }

  void StageOut(const Call&, const StagedChunk&) const override {}

 private:
  static std::uint64_t PieceCount(const Call& call, std::uint64_t capacity) {
    return capacity / static_cast<std::uint64_t>(call.num_ranks);
  }

  // The elements of `owner`'s shard that are in this chunk.
  static Shard PieceOf(const Call& call, const StagedChunk& chunk, int owner) {
    const Shard shard = ElementsOf(call, owner);
    const std::uint64_t piece = PieceCount(call, chunk.capacity);
    const std::uint64_t begin = std::min(shard.count, chunk.index * piece);
    return {shard.begin + begin, std::min(piece, shard.count - begin)};
  }

  // Where the piece of `owner`'s shard lies in a window, in bytes.
  static std::uint64_t SubWindow(const Call& call, const StagedChunk& chunk, int owner) {
    return static_cast<std::uint64_t>(owner) * PieceCount(call, chunk.capacity) * DTypeBytes(call.dtype);
  }
};

}  // namespace

const Collective& ReducescatterCollective() {
  static const Reducescatter reducescatter;
  return reducescatter;
}

}  // namespace tf_smddp
