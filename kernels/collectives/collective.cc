#include "kernels/collectives/collective.h"

namespace tf_smddp {

std::uint64_t Collective::InputCount(const Call& call, ParticipantId) const { return call.count(); }

std::uint64_t Collective::OutputCount(const Call& call, ParticipantId) const { return call.count(); }

Shard Collective::PartFor(const Call& call, ParticipantId sender, ParticipantId) const {
  return {0, InputCount(call, sender)};
}

std::vector<std::int64_t> Collective::OutputRows(const Call& call, ParticipantId) const {
  return {static_cast<std::int64_t>(call.num_rows)};
}

const Collective& FindCollective(CollectiveKind kind) {
  switch (kind) {
#define TF_SMDDP_CASE(enumerator, name, data_plane, ...) \
  case CollectiveKind::k##enumerator:                    \
    return data_plane##Collective();
    TF_SMDDP_COLLECTIVES(TF_SMDDP_CASE)
#undef TF_SMDDP_CASE
  }
  __builtin_unreachable();  // kinds are checked against kNumCollectiveKinds where they enter
}

}  // namespace tf_smddp
