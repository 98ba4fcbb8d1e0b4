// Broadcast: every participant gets the root's input.
//
// Direct: a chunk is copied from the root's input to every output. Staged: the root copies a chunk into its
// window and its own output, and the others copy it from there. Each byte is copied once for each
// participant, and once more on the staged path. If the count does not divide, the last chunk is shorter.
#include <algorithm>
#include <cstring>

#include "kernels/collectives/collective.h"

namespace tf_smddp {
namespace {

class Broadcast final : public Collective {
 public:
  Reach reach() const override { return Reach::kAllOutputs; }

  Shard PartFor(const Call& call, ParticipantId sender, ParticipantId) const override {
    return {0, sender == call.root ? call.count() : 0};
  }

  void Direct(const Call& call, ParticipantId, const void* const* inputs, void* const* outputs,
              std::uint64_t begin, std::uint64_t count) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    const auto* from = static_cast<const std::byte*>(inputs[call.root.index()]) + begin * element_bytes;
    for (int each = 0; each < call.num_ranks; ++each) {
      if (outputs[each] == nullptr) continue;
      auto* to = static_cast<std::byte*>(outputs[each]) + begin * element_bytes;
      if (to != from) std::memcpy(to, from, count * element_bytes);
    }
  }

  std::uint64_t NumChunks(const Call& call, std::uint64_t capacity) const override {
    return (call.count() + capacity - 1) / capacity;
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    if (chunk.self != call.root) return;
    const Range range = RangeOf(call, chunk);
    std::memcpy(chunk.windows[call.root.index()], chunk.input + range.begin, range.bytes);
    if (chunk.output != chunk.input) {
      std::memcpy(chunk.output + range.begin, chunk.input + range.begin, range.bytes);
    }
  }

  void Combine(const Call&, const StagedChunk&) const override {}

  void StageOut(const Call& call, const StagedChunk& chunk) const override {
    if (chunk.self == call.root) return;
    const Range range = RangeOf(call, chunk);
    std::memcpy(chunk.output + range.begin, chunk.windows[call.root.index()], range.bytes);
  }

 private:
  struct Range {
    std::uint64_t begin;  // in bytes
    std::uint64_t bytes;
  };
  static Range RangeOf(const Call& call, const StagedChunk& chunk) {
    const std::uint64_t begin = chunk.index * chunk.capacity;
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    return {begin * element_bytes, std::min(chunk.capacity, call.count() - begin) * element_bytes};
  }
};

}  // namespace

const Collective& BroadcastCollective() {
  static const Broadcast broadcast;
  return broadcast;
}

}  // namespace tf_smddp
