#include "kernels/engine/nccl_use.h"

#include <mutex>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_transfer.h"
#include "kernels/engine/gpu_places.h"

namespace tf_smddp {

bool NcclUse::Keeps(const Request& request) {
  const cuda::Device* const device = GpuOf(request);
  if (device == nullptr || communicator_->wired()) return false;
  // NCCL's communicator has all members.
  const MemberMask active(group_->segment().active().load(std::memory_order_seq_cst));
  if (active != MemberMask::FirstN(group_->size())) return false;
  // A rank keeps to the GPU of its first request.
  const std::uint64_t own = Tell(*device);
  if (own != device->id()) return false;
  for (int member = 0; member < group_->size(); ++member) {
    if (member == group_->index()) continue;
    const std::uint64_t other = group_->segment().member(member).gpu.load(std::memory_order_seq_cst);
    if (other != kNoGpu && other != own) continue;
    // Of a GPU that ranks share warns gpu_places.h.
    if (other == kNoGpu)
      LogHostWay(*device, "rank " + std::to_string(group_->rank_of(member)) + " does not use NCCL");
    return false;
  }
  return nccl::SupportOf(request.operation, communicator_->size()) == nccl::Support::kYes;
}

bool NcclUse::EachHasItsOwn(LocalGroup* group) {
  for (int member = 0; member < group->size(); ++member) {
    const std::uint64_t gpu = group->segment().member(member).gpu.load(std::memory_order_seq_cst);
    if (gpu == kUnknownGpu || gpu == kNoGpu) return false;
    for (int other = 0; other < member; ++other) {
      if (group->segment().member(other).gpu.load(std::memory_order_seq_cst) == gpu) return false;
    }
  }
  return true;
}

// Returns what this rank has told.
std::uint64_t NcclUse::Tell(const cuda::Device& device) {
  std::atomic<std::uint64_t>& told = group_->self().gpu;
  std::uint64_t known = told.load(std::memory_order_seq_cst);
  if (known != kUnknownGpu) return known;
  const Status status = Open();
  if (!status.ok()) LogHostWay(device, status.message());
  const std::uint64_t gpu = status.ok() ? device.id() : kNoGpu;
  return told.compare_exchange_strong(known, gpu, std::memory_order_seq_cst) ? gpu : known;
}

Status NcclUse::Open() const {
  const Config& config = communicator_->config();
  if (!config.nccl) return Internal("SMDDP_NCCL=0");
  Status status;
  const nccl::Library* const library = nccl::NcclTransfer::SharedLibrary(config.nccl_library, &status);
  if (library == nullptr) return status;
  communicator_->job().logger().Log(
      LogLevel::kInfo, "NCCL " + library->version + " (" + library->path + ") reduces tensors of GPUs");
  return {};
}

// One line for the job.
void NcclUse::LogHostWay(const cuda::Device& device, const std::string& reason) const {
  static std::once_flag logged;
  std::call_once(logged, [&] {
    const Job& job = communicator_->job();
    job.logger().Log(
        job.rank() == 0 ? LogLevel::kWarning : LogLevel::kInfo,
        "tensors of " + device.name() +
            " are copied to the host's memory and reduced there, unless all ranks share it: " + reason);
  });
}

}  // namespace tf_smddp
