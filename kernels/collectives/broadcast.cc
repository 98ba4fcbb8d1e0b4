// Broadcast: every rank gets the root's input.
//
// Direct, per chunk: copy it from the root's input to every output. Staged, per chunk: the root copies it
// into its window (and its own output), everyone else copies it out of there. Per rank and byte: one copy;
// two on the staged path. A count that does not divide leaves a shorter last chunk, nothing more.
#include <algorithm>
#include <cstring>

#include "kernels/collectives/collective.h"

namespace tf_smddp {
namespace {

class Broadcast final : public Collective {
 public:
  Reach reach() const override { return Reach::kAllOutputs; }

  void Direct(const Call& call, int, const void* const* inputs, void* const* outputs, std::uint64_t begin,
              std::uint64_t count) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    const auto* from = static_cast<const std::byte*>(inputs[call.root]) + begin * element_bytes;
    for (int rank = 0; rank < call.num_ranks; ++rank) {
      auto* to = static_cast<std::byte*>(outputs[rank]) + begin * element_bytes;
      if (to != from) std::memcpy(to, from, count * element_bytes);
    }
  }

  void DirectOwn(const Call& call, const void* const* inputs, void* output) const override {
    const void* const from = inputs[call.root];
    if (output != from) std::memcpy(output, from, call.count() * DTypeBytes(call.dtype));
  }

  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override {
    return (call.count() + capacity - 1) / capacity;
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    if (chunk.rank != call.root) return;
    const Range range = RangeOf(call, chunk);
    std::memcpy(chunk.windows[call.root], chunk.input + range.begin, range.bytes);
    if (chunk.output != chunk.input) {
      std::memcpy(chunk.output + range.begin, chunk.input + range.begin, range.bytes);
    }
  }

  void Combine(const Call&, const StagedChunk&) const override {}

  void StageOut(const Call& call, const StagedChunk& chunk) const override {
    if (chunk.rank == call.root) return;
    const Range range = RangeOf(call, chunk);
    std::memcpy(chunk.output + range.begin, chunk.windows[call.root], range.bytes);
  }

 private:
  struct Range {
    std::uint64_t begin;  // in bytes
    std::uint64_t bytes;
  };
  static Range RangeOf(const Call& call, const StagedChunk& chunk) {
    const std::uint64_t begin = chunk.index * chunk.capacity;
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    return {begin * element_bytes, std::min(chunk.capacity, call.count() - begin) * element_bytes};
  }
};

}  // namespace

const Collective& BroadcastCollective() {
  static const Broadcast broadcast;
  return broadcast;
}

}  // namespace tf_smddp
