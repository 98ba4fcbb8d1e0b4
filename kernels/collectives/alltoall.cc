// Alltoall: each rank's input is cut by rows into a part for each rank; a rank gets all parts that are for
// it, in the order of the senders. How the bytes move: exchange.h.
#include "kernels/collectives/exchange.h"

namespace tf_smddp {
namespace {

class Alltoall final : public Exchange {
 public:
  std::uint64_t InputCount(const Call& call, int rank) const override {
    const Shard last = RowsFor(call, rank, call.num_ranks - 1);
    return (last.begin + last.count) * call.row_count;
  }

 private:
  Shard RowsFor(const Call& call, int sender, int receiver) const override {
    const std::uint64_t* rows = call.rows.data() + static_cast<std::ptrdiff_t>(sender) * call.num_ranks;
    std::uint64_t begin = 0;
    for (int before = 0; before < receiver; ++before) begin += rows[before];
    return {begin, rows[receiver]};
  }
};

}  // namespace

const Collective& AlltoallCollective() {
  static const Alltoall alltoall;
  return alltoall;
}

}  // namespace tf_smddp
