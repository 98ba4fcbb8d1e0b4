#include "kernels/collectives/backends/nccl/device_uses.h"

namespace tf_smddp {
namespace {

const cuda::Order& OrderOf(void* stream) { return *static_cast<const cuda::Order*>(stream); }

}  // namespace

Status DeviceUses::Begin(const ResolvedRequest& request, cuda::OwnStream* stream) {
  for (void* const order : {request.device_input->stream, request.device_output->stream}) {
    const cuda::Event reached = OrderOf(order).Reached();
    if (reached == last_) continue;  // most often, the two are one
    const Status status = stream->WaitFor(reached);
    if (!status.ok()) return status;
    last_ = reached;
  }
  writes_.push_back(OrderOf(request.device_output->stream).writes);
  writes_.back()->Begin();
  if (request.output_owner != nullptr) owners_.push_back(request.output_owner);
  return {};
}

void DeviceUses::End(const Status& outcome) const {
  for (const std::shared_ptr<cuda::Writes>& each : writes_) each->End(outcome);
}

}  // namespace tf_smddp
