// Allreduce: every participant gets the reduction of all inputs. They are added in the order of the
// participants, so the result is bitwise the same everywhere.
//
// Direct (all tensors are in arenas): whoever claims a chunk reads the N inputs and writes the N outputs. If
// the N ranks share the work evenly, each reads and writes each byte of its tensor once, the least that
// memory allows.
//
// Staged (some tensor is in private memory): a chunk is cut into N shards (shard.h). If the count does not
// divide, the last ones are shorter or empty.
//   StageIn   copies the other participants' shards of the own input into the own window
//   Combine   reduces the own shard, from the other windows and the own input, into the own output and window
//   StageOut  copies the other shards from their owners' windows
// Each participant copies 2(N-1)/N of its tensor in and out, and for 1/N of it there are N reads and 2
// writes. If every participant reduced everything for itself, it would read N times the tensor.
#include <algorithm>
#include <cstring>

#include "kernels/collectives/addresses.h"
#include "kernels/collectives/collective.h"
#include "kernels/collectives/shard.h"
#include "kernels/common/config.h"
#include "kernels/reduce/reduce.h"

namespace tf_smddp {
namespace {

constexpr std::uint64_t kLineBytes = 64;  // of the cache

// Results of so many bytes or more are written past the cache, unless they replace the inputs.
constexpr std::uint64_t kPastCacheBytes = 4 << 20;

class Allreduce final : public Collective {
 public:
  Reach reach() const override { return Reach::kAllOutputs; }

  void Direct(const Call& call, ParticipantId, const void* const* inputs, void* const* outputs,
              std::uint64_t begin, std::uint64_t count) const override {
    const std::uint64_t offset = begin * DTypeBytes(call.operation.dtype);
    Addresses from(call.num_ranks);
    void* to[kMaxLocalRanks];
    int num_outputs = 0;
    for (int each = 0; each < call.num_ranks; ++each) {
      from[each] = static_cast<const std::byte*>(inputs[each]) + offset;
      if (outputs[each] != nullptr) to[num_outputs++] = static_cast<std::byte*>(outputs[each]) + offset;
    }
    const bool past_cache = call.count() * DTypeBytes(call.operation.dtype) >= kPastCacheBytes;
    Reduce({call.operation.dtype, call.operation.op, call.operation.prescale, call.operation.postscale,
            past_cache},
           from.data(), call.num_ranks, to, num_outputs, count);
  }

  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override {
    return (call.count() + capacity - 1) / capacity;
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    const std::byte* input = chunk.input + Begin(call, chunk);
    ForOtherShards(call, chunk, [&](int, std::uint64_t offset, std::uint64_t bytes) {
      std::memcpy(chunk.windows[chunk.self.index()] + offset, input + offset, bytes);
    });
  }

  void Combine(const Call& call, const StagedChunk& chunk) const override {
    const Shard own = ShardOf(Count(call, chunk), call.num_ranks, chunk.self.value(), Granule(call));
    if (own.count == 0) return;
    const std::uint64_t offset = own.begin * DTypeBytes(call.operation.dtype);
    const void* from[kMaxLocalRanks];
    for (int each = 0; each < call.num_ranks; ++each) {
      const bool own_input = each == chunk.self.value();
      from[each] = (own_input ? chunk.input + Begin(call, chunk) : chunk.windows[each]) + offset;
    }
    void* to[2] = {chunk.output + Begin(call, chunk) + offset, chunk.windows[chunk.self.index()] + offset};
    Reduce({call.operation.dtype, call.operation.op, call.operation.prescale, call.operation.postscale}, from,
           call.num_ranks, to, 2, own.count);
  }

  void StageOut(const Call& call, const StagedChunk& chunk) const override {
    std::byte* output = chunk.output + Begin(call, chunk);
    ForOtherShards(call, chunk, [&](int owner, std::uint64_t offset, std::uint64_t bytes) {
      std::memcpy(output + offset, chunk.windows[owner] + offset, bytes);
    });
  }

 private:
  static std::uint64_t Granule(const Call& call) { return kLineBytes / DTypeBytes(call.operation.dtype); }

  // The byte of the tensor at which the chunk begins, and its elements.
  static std::uint64_t Begin(const Call& call, const StagedChunk& chunk) {
    return chunk.index * chunk.capacity * DTypeBytes(call.operation.dtype);
  }
  static std::uint64_t Count(const Call& call, const StagedChunk& chunk) {
    return std::min(chunk.capacity, call.count() - chunk.index * chunk.capacity);
  }

  // Calls body(owner, offset in bytes, bytes) for each other participant's shard that is not empty.
  template <typename Body>
  static void ForOtherShards(const Call& call, const StagedChunk& chunk, Body body) {
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    for (int owner = 0; owner < call.num_ranks; ++owner) {
      const Shard shard = ShardOf(Count(call, chunk), call.num_ranks, owner, Granule(call));
      if (owner == chunk.self.value() || shard.count == 0) continue;
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
