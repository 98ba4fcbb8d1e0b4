#include "kernels/collectives/collective.h"

namespace tf_smddp {

std::uint64_t Collective::InputCount(const Call& call, int) const { return call.count(); }

std::uint64_t Collective::OutputCount(const Call& call, int) const { return call.count(); }

std::vector<std::int64_t> Collective::OutputRows(const Call& call, int) const {
  return {static_cast<std::int64_t>(call.num_rows)};
}

void Collective::DirectOwn(const Call&, const void* const*, void*) const { __builtin_unreachable(); }

const Collective& FindCollective(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllreduce:
      return AllreduceCollective();
    case CollectiveKind::kBroadcast:
      return BroadcastCollective();
    case CollectiveKind::kBarrier:
    case CollectiveKind::kCommunicator:
      return BarrierCollective();
    case CollectiveKind::kAllgather:
      return AllgatherCollective();
    case CollectiveKind::kReducescatter:
      return ReducescatterCollective();
    case CollectiveKind::kAlltoall:
      return AlltoallCollective();
  }
  __builtin_unreachable();  // kinds are checked against kNumCollectiveKinds where they enter
}

}  // namespace tf_smddp
