// NcclUse: decides which requests keep their tensors on a GPU, for NCCL.
//
// Place in the stack: below submission.h, which asks for each request, and resolve.h, which decides when all
// ranks have arrived. Each rank decides for its own tensors, by what it knows of the others: NCCL wants each
// rank on a GPU of its own. A rank that keeps a tensor where others do not copies it to the host late
// (batch_runner.h). So nothing need be agreed on, and ranks with and without a GPU can meet. Between hosts
// the relays report what the ranks of their hosts have kept, and the head tells all whether NCCL moves a
// request (kernels/control/host_order.h).
#ifndef TF_SMDDP_KERNELS_ENGINE_NCCL_USE_H_
#define TF_SMDDP_KERNELS_ENGINE_NCCL_USE_H_

#include <cstdint>
#include <string>

#include "kernels/common/rank_id.h"
#include "kernels/control/relay_message.h"
#include "kernels/cuda/device.h"
#include "kernels/engine/communicator.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class NcclUse {
 public:
  // It outlives this.
  explicit NcclUse(Communicator* communicator)
      : communicator_(communicator), group_(&communicator->group()) {}

  // Whether this rank keeps the tensors of `request` on their device. The first request with tensors on a GPU
  // opens NCCL, and tells the other ranks which GPU this rank has. Any thread.
  bool Keeps(const Request& request);

  // Returns the version of NCCL if all members have told that they use it, and each has a GPU of its own. The
  // same on all ranks, once each of them has kept a request. kNoNccl if that will never be; then *without is
  // a rank because of which. kNotKept while it is not known. Any thread.
  static std::uint32_t VersionOf(LocalGroup* group, RankId* without);
  static bool EachHasItsOwn(LocalGroup* group) {
    RankId without;
    return VersionOf(group, &without) > kNoNccl;
  }

 private:
  std::uint64_t Tell(const cuda::Device& device);
  Status Open(int* version) const;
  bool MembersMayUseIt(const cuda::Device& device) const;
  void LogHostWay(const cuda::Device& device, const std::string& reason) const;

  Communicator* const communicator_;
  LocalGroup* const group_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_NCCL_USE_H_
