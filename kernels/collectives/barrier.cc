// Barrier: it completes on no rank before every rank has submitted it. It moves no data: its count is 0, so
// it is done when it is ready. The agreement on a communicator is a barrier, too, whose manifest names the
// ranks.
#include "kernels/collectives/collective.h"

namespace tf_smddp {
namespace {

class Barrier final : public Collective {
 public:
  Reach reach() const override { return Reach::kAllOutputs; }
  void Direct(const Call&, ParticipantId, const void* const*, void* const*, std::uint64_t,
              std::uint64_t) const override {}
  std::uint64_t NumChunks(const Call&, std::uint64_t) const override { return 0; }
  void StageIn(const Call&, const StagedChunk&) const override {}
  void Combine(const Call&, const StagedChunk&) const override {}
  void StageOut(const Call&, const StagedChunk&) const override {}
};

}  // namespace

const Collective& BarrierCollective() {
  static const Barrier barrier;
  return barrier;
}

}  // namespace tf_smddp
