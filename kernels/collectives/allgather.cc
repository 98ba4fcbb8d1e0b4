// Allgather: every participant gets the inputs of all, one behind the other, in the order of the
// participants. They may have different numbers of rows. exchange.h says how the bytes move.
#include "kernels/collectives/exchange.h"

namespace tf_smddp {
namespace {

class Allgather final : public Exchange {
 public:
  std::uint64_t InputCount(const Call& call, ParticipantId participant) const override {
    return call.rows[participant.index()] * call.row_count;
  }

 private:
  Shard RowsFor(const Call& call, ParticipantId sender, ParticipantId) const override {
    return {0, call.rows[sender.index()]};
  }
};

}  // namespace

const Collective& AllgatherCollective() {
  static const Allgather allgather;
  return allgather;
}

}  // namespace tf_smddp
