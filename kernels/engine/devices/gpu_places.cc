#include "kernels/engine/devices/gpu_places.h"

namespace tf_smddp {
namespace {

constexpr char kRemedy[] =
    "tf.config.set_visible_devices(gpus[local_rank()], \"GPU\") after init() gives each rank a GPU of its "
    "own";

constexpr std::uint64_t kUnknown = 0;  // no device

const MemoryKind* DeviceOfInput(const Request& request) {
  const MemoryKind* const kind = request.input.kind;
  return kind == nullptr || kind->id() == kUnknown ? nullptr : kind;
}

}  // namespace

const MemoryKind* DeviceOf(const Request& request) {
  return request.input.kind == request.output.kind ? DeviceOfInput(request) : nullptr;
}

void GpuPlaces::Tell(const Request& request) {
  const MemoryKind* const device = DeviceOfInput(request);
  if (device == nullptr) return;
  std::uint64_t told = kUnknown;
  if (Told(communicator_->job().local_rank())
          .compare_exchange_strong(told, device->id(), std::memory_order_seq_cst) ||
      told == device->id()) {
    return;
  }
  Warn(kTwoGpus, "rank " + std::to_string(communicator_->job().rank()) + " reduces tensors of " +
                     device->Describe() + ", and of another GPU before; those of one of them are copied to " +
                     "the host's memory and reduced there; " + kRemedy);
}

void GpuPlaces::Look(const Request& request, const Manifest& manifest) {
  if (request.input.on_host() || looked_.load(std::memory_order_relaxed)) return;
  const MemoryKind* const device = DeviceOfInput(request);
  if (device == nullptr || looked_.exchange(true, std::memory_order_relaxed)) return;
  LocalGroup& group = communicator_->group();
  const std::uint64_t active = group.segment().active().load(std::memory_order_seq_cst);
  RankSet sharing, on_gpus, on_host;
  for (int member = 0; member < group.size(); ++member) {
    if ((active >> member & 1) == 0) continue;  // it has left, and perhaps before this request
    const RankId rank(group.rank_of(member));
    const std::uint64_t gpu =
        Told(communicator_->job().LocalRankOf(rank.value())).load(std::memory_order_seq_cst);
    (gpu == kUnknown ? on_host : on_gpus).Add(rank);
    if (gpu == device->id()) sharing.Add(rank);
  }
  if (sharing.size() > 1 && !communicator_->config().test_own_gpu) {
    Warn(kShared, RankList(sharing) + " share " + device->Describe() +
                      ", so its tensors are copied to the host's memory and reduced there" +
                      ", which is slower than a GPU for each rank; " + kRemedy + ", if there are as many");
  }
  if (!on_host.empty()) {
    Warn(kMixed, "the tensor of " + DescribeManifest(manifest) + " lies on a GPU on " + RankList(on_gpus) +
                     ", and in the host's memory on " + RankList(on_host) +
                     ", so it is reduced in the host's memory; give all ranks a GPU, or none: look at " +
                     "CUDA_VISIBLE_DEVICES, tf.config.set_visible_devices and tf.device on " +
                     RankList(on_host));
  }
}

std::atomic<std::uint64_t>& GpuPlaces::Told(int local) const {
  return communicator_->job().segment().rank(local).gpu;
}

void GpuPlaces::Warn(Warning warning, const std::string& text) const {
  Job& job = communicator_->job();
  if ((job.segment().gpu_warnings().fetch_or(warning, std::memory_order_seq_cst) & warning) != 0) return;
  job.logger().Log(LogLevel::kWarning, text);
}

}  // namespace tf_smddp
