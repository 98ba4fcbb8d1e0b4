// Alltoall: each participant's input is cut by rows into a part for each participant. A participant gets all
// parts that are for it, in the order of the senders. exchange.h says how the bytes move.
#include <string>

#include "kernels/collectives/exchange.h"

namespace tf_smddp {
namespace {

class Alltoall final : public Exchange {
 public:
  Status Check(const Arguments& arguments) const override {
    Status status = Exchange::Check(arguments);
    return status.ok() ? CheckSplits(arguments) : status;
  }

  std::uint64_t InputCount(const Call& call, ParticipantId participant) const override {
    const Shard last = RowsFor(call, participant, ParticipantId(call.num_ranks - 1));
    return (last.begin + last.count) * call.row_count;
  }

 private:
  static Status CheckSplits(const Arguments& arguments) {
    const std::vector<std::int64_t>& splits = arguments.splits;
    if (splits.size() != arguments.ranks.size()) {
      return InvalidArgument("alltoall with " + std::to_string(splits.size()) + " splits for " +
                             std::to_string(arguments.ranks.size()) +
                             " ranks; give one number of rows for each");
    }
    std::int64_t left = arguments.shape[0];
    for (const std::int64_t rows : splits) {
      if (rows < 0) return InvalidArgument("alltoall with a split of " + std::to_string(rows) + " rows");
      if (rows > left) left = -1;  // the sum may be more than 64 bits hold
      if (left >= 0) left -= rows;
    }
    if (left == 0) return {};
    return InvalidArgument("alltoall whose splits do not add up to its tensor's " +
                           std::to_string(arguments.shape[0]) + " rows");
  }

  Shard RowsFor(const Call& call, ParticipantId sender, ParticipantId receiver) const override {
    std::uint64_t begin = 0;  // of a sender on another host it is not known, and not needed
    if (call.AllSplitsKnown(sender)) {
      const std::vector<std::uint64_t>& rows = call.splits[sender.index()];
      for (std::size_t before = 0; before < receiver.index(); ++before) begin += rows[before];
    }
    return {begin, call.SplitRows(sender, receiver)};
  }
};

}  // namespace

const Collective& AlltoallCollective() {
  static const Alltoall alltoall;
  return alltoall;
}

}  // namespace tf_smddp
