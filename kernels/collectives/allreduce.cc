// Allreduce: every rank gets the reduction of all ranks' inputs, added in rank order, so bitwise the same
// everywhere.
//
// Direct (all tensors in arenas), per chunk: read the N inputs, write the N outputs; nothing else. Whoever
// claims the chunk does it alone. Per rank and byte of tensor: one read and one write when the N ranks share
// the work evenly, the least that memory allows.
//
// Staged (some tensor in private memory), per chunk: it is cut into N shards (shard.h; the last ones may be
// shorter or empty when the count does not divide).
//   StageIn   copies the other ranks' shards of the own input into the own window
//   Combine   reduces the own shard, from the other windows and the own input, into the own output and window
//   StageOut  copies the other shards out of their owners' windows
// Per rank and byte: 2(N-1)/N copied in and out, and N reads and 2 writes for 1/N of it. Chosen over every
// rank reducing everything for itself, which reads N times the tensor.
#include <algorithm>
#include <cstring>

#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"
#include "kernels/common/config.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kLineBytes = 64;

// A result elsewhere that is as large as this is written past the cache.
constexpr std::uint64_t kPastCacheBytes = 4 << 20;

class Allreduce final : public Collective {
 public:
  Reach reach() const override { return Reach::kAllOutputs; }

  void Direct(const Call& call, int, const void* const* inputs, void* const* outputs, std::uint64_t begin,
              std::uint64_t count) const override {
    const std::uint64_t offset = begin * DTypeBytes(call.dtype);
    const void* from[kMaxLocalRanks];
    void* to[kMaxLocalRanks];
    for (int rank = 0; rank < call.num_ranks; ++rank) {
      from[rank] = static_cast<const std::byte*>(inputs[rank]) + offset;
      to[rank] = static_cast<std::byte*>(outputs[rank]) + offset;
    }
    const bool past_cache = call.count() * DTypeBytes(call.dtype) >= kPastCacheBytes;
    Reduce({call.dtype, call.op, call.prescale, call.postscale, past_cache}, from, call.num_ranks, to,
           call.num_ranks, count);
  }

  void DirectOwn(const Call& call, const void* const* inputs, void* output) const override {
    Reduce({call.dtype, call.op, call.prescale, call.postscale}, inputs, call.num_ranks, &output, 1,
           call.count());
  }

  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override {
    return (call.count() + capacity - 1) / capacity;
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    const std::byte* input = chunk.input + Begin(call, chunk);
    ForOtherShards(call, chunk, [&](int, std::uint64_t offset, std::uint64_t bytes) {
      std::memcpy(chunk.windows[chunk.rank] + offset, input + offset, bytes);
    });
  }

  void Combine(const Call& call, const StagedChunk& chunk) const override {
    const Shard own = ShardOf(Count(call, chunk), call.num_ranks, chunk.rank, Granule(call));
    if (own.count == 0) return;
    const std::uint64_t offset = own.begin * DTypeBytes(call.dtype);
    const void* from[kMaxLocalRanks];
    for (int rank = 0; rank < call.num_ranks; ++rank) {
      from[rank] = (rank == chunk.rank ? chunk.input + Begin(call, chunk) : chunk.windows[rank]) + offset;
    }
    void* to[2] = {chunk.output + Begin(call, chunk) + offset, chunk.windows[chunk.rank] + offset};
    Reduce({call.dtype, call.op, call.prescale, call.postscale}, from, call.num_ranks, to, 2, own.count);
  }

  void StageOut(const Call& call, const StagedChunk& chunk) const override {
    std::byte* output = chunk.output + Begin(call, chunk);
    ForOtherShards(call, chunk, [&](int owner, std::uint64_t offset, std::uint64_t bytes) {
      std::memcpy(output + offset, chunk.windows[owner] + offset, bytes);
    });
  }

 private:
  static std::uint64_t Granule(const Call& call) { return kLineBytes / DTypeBytes(call.dtype); }

  // Where the chunk begins in the tensor, in bytes, and its elements.
  static std::uint64_t Begin(const Call& call, const StagedChunk& chunk) {
    return chunk.index * chunk.capacity * DTypeBytes(call.dtype);
  }
  static std::uint64_t Count(const Call& call, const StagedChunk& chunk) {
    return std::min(chunk.capacity, call.count() - chunk.index * chunk.capacity);
  }

  // Calls body(owner, offset in bytes, bytes) for each other rank's shard that is not empty.
  template <typename Body>
  static void ForOtherShards(const Call& call, const StagedChunk& chunk, Body body) {
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    for (int owner = 0; owner < call.num_ranks; ++owner) {
      const Shard shard = ShardOf(Count(call, chunk), call.num_ranks, owner, Granule(call));
      if (owner == chunk.rank || shard.count == 0) continue;
      body(owner, shard.begin * element_bytes, shard.count * element_bytes);
    }
  }
};

}  // namespace

const Collective& AllreduceCollective() {
  static const Allreduce allreduce;
  return allreduce;
}

}  // namespace tf_smddp
