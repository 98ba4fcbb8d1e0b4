#include "kernels/engine/nccl_use.h"

#include <mutex>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_transfer.h"
#include "kernels/engine/gpu_places.h"

namespace tf_smddp {

bool NcclUse::Keeps(const Request& request) {
  const cuda::Device* const device = GpuOf(request);
  // A lone member has nothing to exchange, and would wait half a second for a communicator of NCCL.
  if (device == nullptr || communicator_->size() == 1) return false;
  // NCCL's communicator has all members.
  CommunicatorSegment& segment = group_->segment();
  const MemberMask active(segment.active().load(std::memory_order_seq_cst));
  if (active.Without(segment.outside()) != MemberMask::FirstN(group_->size())) return false;
  if (communicator_->wired() && segment.outside_left().load(std::memory_order_seq_cst) != 0) return false;
  // A rank keeps to the GPU of its first request.
  if (Tell(*device) != device->id() || !MembersMayUseIt(*device)) return false;
  return nccl::SupportOf(request.operation, communicator_->size()) == nccl::Support::kYes;
}

// False if they will never all use NCCL, as far as this rank knows.
bool NcclUse::MembersMayUseIt(const cuda::Device& device) const {
  RankId without;
  if (VersionOf(group_, &without) == kNoNccl) {
    const MemberRecord& member = group_->segment().member(group_->IndexOf(without.value()));
    // gpu_places.h warns of a GPU that ranks share.
    if (member.gpu.load(std::memory_order_seq_cst) == kNoGpu) {
      LogHostWay(device, "rank " + std::to_string(without.value()) + " does not use NCCL");
    }
    return false;
  }
  if (!communicator_->wired()) return true;
  const std::uint64_t elsewhere = group_->segment().without_nccl().load(std::memory_order_seq_cst);
  if (elsewhere == 0) return true;
  LogHostWay(device, "rank " + std::to_string(elsewhere - 1) +
                         " does not use NCCL, or shares its GPU, or has another version of NCCL than rank " +
                         std::to_string(communicator_->head().value()));
  return false;
}

std::uint32_t NcclUse::VersionOf(LocalGroup* group, RankId* without) {
  CommunicatorSegment& segment = group->segment();
  std::uint32_t version = kNotKept;
  bool all_known = true;
  for (int member = 0; member < group->size(); ++member) {
    const std::uint64_t gpu = segment.member(member).gpu.load(std::memory_order_seq_cst);
    if (gpu == kUnknownGpu) {
      all_known = false;
      continue;
    }
    const std::uint32_t its = segment.member(member).nccl_version.load(std::memory_order_seq_cst);
    bool fits = gpu != kNoGpu && (version == kNotKept || its == version);
    for (int other = 0; other < member; ++other) {
      if (segment.member(other).gpu.load(std::memory_order_seq_cst) == gpu) fits = false;
    }
    if (!fits) {
      *without = RankId(group->rank_of(member));
      return kNoNccl;
    }
    version = its;
  }
  return all_known ? version : kNotKept;
}

// Returns what this rank has told.
std::uint64_t NcclUse::Tell(const cuda::Device& device) {
  std::atomic<std::uint64_t>& told = group_->self().gpu;
  std::uint64_t known = told.load(std::memory_order_seq_cst);
  if (known != kUnknownGpu) return known;
  int version = 0;
  const Status status = Open(&version);
  if (!status.ok()) LogHostWay(device, status.message());
  group_->self().nccl_version.store(static_cast<std::uint32_t>(version), std::memory_order_seq_cst);
  const std::uint64_t gpu = status.ok() ? device.id() : kNoGpu;
  return told.compare_exchange_strong(known, gpu, std::memory_order_seq_cst) ? gpu : known;
}

Status NcclUse::Open(int* version) const {
  const Config& config = communicator_->config();
  if (!config.nccl) return Internal("SMDDP_NCCL=0");
  Status status;
  const nccl::Library* const library = nccl::NcclTransfer::SharedLibrary(config.nccl_library, &status);
  if (library == nullptr) return status;
  status = library->Check("ncclGetVersion", library->GetVersion(version));
  if (!status.ok()) return status;
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
        "tensors of " + device.name() + " are copied to the host's memory and reduced there: " + reason);
  });
}

}  // namespace tf_smddp
