// Allgather: every rank gets all ranks' inputs, one behind the other, in rank order. Their rows may differ in
// number. How the bytes move: exchange.h.
#include "kernels/collectives/exchange.h"

namespace tf_smddp {
namespace {

class Allgather final : public Exchange {
 public:
  std::uint64_t InputCount(const Call& call, int rank) const override {
    return call.rows[static_cast<std::size_t>(rank)] * call.row_count;
  }

 private:
  Shard RowsFor(const Call& call, int sender, int) const override {
    return {0, call.rows[static_cast<std::size_t>(sender)]};
  }
};

}  // namespace

const Collective& AllgatherCollective() {
  static const Allgather allgather;
  return allgather;
}

}  // namespace tf_smddp
