#include "kernels/collectives/backends/shared_memory/own_output_transfer.h"

#include <utility>

namespace tf_smddp {

std::uint64_t OwnOutputTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  requests_ = std::move(requests);
  plan_.Clear();
  next_ = 0;
  MemberMask participants;
  for (const ResolvedRequest* request : requests_) {
    plan_.Add(request->collective->OutputCount(request->call, request->self),
              chunk_bytes_ / DTypeBytes(request->call.operation.dtype));
    participants |= request->participants;
  }
  done_ = requests_.empty();
  return static_cast<std::uint64_t>(participants.size());
}

Transfer::Progress OwnOutputTransfer::Step() {
  if (next_ < plan_.total()) {
    const ChunkPlan::Chunk part = plan_.At(next_++);
    const ResolvedRequest& request = *requests_[part.item];
    request.collective->Direct(request.call, request.self, request.inputs.data(), request.outputs.data(),
                               part.begin, part.count);
  }
  done_ = next_ == plan_.total();
  return {/*moved=*/true, /*unit_done=*/done_, /*peers_wait=*/false};
}

}  // namespace tf_smddp
