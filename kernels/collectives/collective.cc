#include "kernels/collectives/collective.h"

namespace tf_smddp {

const Collective& FindCollective(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllreduce:
      return AllreduceCollective();
    case CollectiveKind::kBroadcast:
      return BroadcastCollective();
    case CollectiveKind::kBarrier:
      return BarrierCollective();
  }
  __builtin_unreachable();  // kinds are checked against kNumCollectiveKinds where they enter
}

}  // namespace tf_smddp
