// ResolvedRequest: a ready request as the data plane needs it, with its participants, sizes and addresses.
//
// Place in the stack: the engine makes it (kernels/engine/core/resolve.h), and a Transfer moves it.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_RESOLVED_REQUEST_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_RESOLVED_REQUEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/collectives/collective.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/rank_mask.h"
#include "kernels/memory/buffer.h"

namespace tf_smddp {

struct ResolvedRequest {
  const Collective* collective = nullptr;
  Call call;
  MemberMask participants;  // those of this host
  ParticipantId self;       // this rank
  bool reachable = false;   // Direct can run: what it reads and writes of other ranks lies in arenas
  bool all_bounced = true;  // where the way leads through the host, no tensor of this host is on a GPU still
  // These have an entry for each participant, on whatever host. The addresses of another rank's tensors are
  // nullptr if its memory is private or on another host, or if there are no bytes. With Reach::kOwnOutput,
  // only this rank's output is used.
  std::vector<MemberId> members;  // no member: on another host
  std::vector<RankId> ranks;      // only when there are some on other hosts
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  // The tensors of all ranks are moved where they lie, on devices. Then these are this rank's buffers.
  bool on_devices = false;
  const InputBuffer* device_input = nullptr;
  const Buffer* device_output = nullptr;
  std::shared_ptr<void> output_owner;  // of an output that nobody else keeps

  bool all_outputs() const { return collective->reach() == Collective::Reach::kAllOutputs; }
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_RESOLVED_REQUEST_H_
