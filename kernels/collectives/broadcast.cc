// Broadcast: every rank gets the root's input.
//
// Direct, per chunk: copy it from the root's input to every output. Staged, per chunk: the root copies it
// into its window (and its own output), everyone else copies it out of there. Per rank and byte: one copy;
// two on the staged path. A count that does not divide leaves a shorter last chunk, nothing more.
#include <cstring>

#include "kernels/collectives/collective.h"

namespace tf_smddp {
namespace {

class Broadcast final : public Collective {
 public:
  void Direct(const Call& call, const void* const* inputs, void* const* outputs, std::uint64_t begin,
              std::uint64_t count) const override {
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    const auto* from = static_cast<const std::byte*>(inputs[call.root]) + begin * element_bytes;
    for (int rank = 0; rank < call.num_ranks; ++rank) {
      auto* to = static_cast<std::byte*>(outputs[rank]) + begin * element_bytes;
      if (to != from) std::memcpy(to, from, count * element_bytes);
    }
  }

  void StageIn(const Call& call, const StagedChunk& chunk) const override {
    if (chunk.rank != call.root) return;
    const std::uint64_t bytes = chunk.count * DTypeBytes(call.dtype);
    std::memcpy(chunk.windows[call.root], chunk.input, bytes);
    if (chunk.output != chunk.input) std::memcpy(chunk.output, chunk.input, bytes);
  }

  void Combine(const Call&, const StagedChunk&) const override {}

  void StageOut(const Call& call, const StagedChunk& chunk) const override {
    if (chunk.rank == call.root) return;
    std::memcpy(chunk.output, chunk.windows[call.root], chunk.count * DTypeBytes(call.dtype));
  }
};

}  // namespace

const Collective& BroadcastCollective() {
  static const Broadcast broadcast;
  return broadcast;
}

}  // namespace tf_smddp
