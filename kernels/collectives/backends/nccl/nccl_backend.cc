#include "kernels/collectives/backends/nccl/nccl_backend.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/collectives/backends/nccl/nccl_meeting.h"
#include "kernels/collectives/backends/nccl/nccl_transfer.h"
#include "kernels/collectives/backends/nccl/nccl_turns.h"

namespace tf_smddp::nccl {
namespace {

// The values of MemberUse::gpu besides MemoryKind::id.
constexpr std::uint64_t kUnknown = 0;  // before the first request with tensors on a GPU
constexpr std::uint64_t kNone = ~std::uint64_t{0};

// How long the end of the job waits before it ends the calls, if there are other hosts. When they end, ranks
// that have not come past them may get garbage, and see no error of NCCL. They see the end of the job, which
// is under way to their hosts.
constexpr std::chrono::milliseconds kNewsPatience{200};

// Older versions are used, with a warning.
constexpr int kOldestAdvised = 21805;

// How a member uses NCCL.
struct MemberUse {
  std::atomic<std::uint64_t> gpu;      // whose tensors it gives to NCCL; kNone: it does not use NCCL
  std::atomic<std::uint64_t> board;    // MemoryKind::board of that; set before `gpu`
  std::atomic<std::uint32_t> version;  // of its NCCL, as ncclGetVersion has it; set before `gpu`
};

// The memory that the members of a communicator share.
struct Shared {
  Meeting meeting;
  MemberUse uses[kMaxLocalRanks];
};

// Decides which requests keep their tensors on a GPU. Each rank decides for its own tensors, by what it knows
// of the others: NCCL wants each rank on a GPU of its own. A rank that keeps a tensor where others do not
// copies it to the host late (kernels/engine/core/batch_runner.h). So nothing need be agreed on, and ranks
// with and without a GPU can meet. Between hosts the relays report what the ranks of their hosts have kept,
// and the head tells all whether NCCL moves a request (kernels/control/host_order.h).
class Keeper : public DeviceKeeper {
 public:
  Keeper(CommunicatorView communicator, MemberUse* members, const NcclTransfer* transfer,
         std::atomic<bool>* refused)
      : communicator_(std::move(communicator)),
        members_(members),
        self_(&members[communicator_.self.index()]),
        transfer_(transfer),
        refused_(refused) {}

  // The first request with tensors on a GPU opens NCCL, and tells the other ranks which GPU this rank has.
  bool Keeps(const Operation& operation, const MemoryKind& device, RankId elsewhere) override {
    // A rank keeps to the GPU of its first request.
    if (Refused() || Tell(device) != device.id() || !MembersMayUseIt(device, elsewhere)) return false;
    return SupportOf(operation, static_cast<int>(communicator_.ranks.size())) == Support::kYes;
  }

  std::uint32_t Version(RankId* without) const override {
    std::uint32_t version = 0;
    const int misfit = FindMisfit(&version);
    if (misfit >= 0) *without = RankOf(misfit);
    if (Refused()) *without = communicator_.rank();
    return without->valid() ? 0 : version;
  }

  bool Refused() const override {
    if (!transfer_->refused()) return false;
    refused_->store(true, std::memory_order_relaxed);
    return true;
  }

 private:
  // Returns a member because of which they cannot use NCCL together, or -1. *version is that of all members;
  // 0 while it is not known.
  int FindMisfit(std::uint32_t* version) const {
    std::uint32_t first = 0;
    bool all_known = true;
    for (int member = 0; member < communicator_.num_members(); ++member) {
      const std::uint64_t gpu = GpuOf(member);
      if (gpu == kUnknown) {
        all_known = false;
        continue;
      }
      const std::uint32_t its = members_[member].version.load(std::memory_order_seq_cst);
      bool fits = gpu != kNone && (first == 0 || its == first);
      for (int other = 0; other < member; ++other) {
        const bool shares = GpuOf(other) == gpu && !communicator_.config->test_own_gpu;
        if (shares || SharesBoard(member, other)) fits = false;
      }
      if (!fits) return member;
      first = its;
    }
    *version = all_known ? first : 0;
    return -1;
  }

  // Parts of one GPU (MIG). NCCL refuses them, since they have one address.
  bool SharesBoard(int member, int other) const {
    return GpuOf(member) != GpuOf(other) && GpuOf(member) != kNone && GpuOf(other) != kNone &&
           members_[member].board.load(std::memory_order_relaxed) ==
               members_[other].board.load(std::memory_order_relaxed);
  }

  std::uint64_t GpuOf(int member) const { return members_[member].gpu.load(std::memory_order_seq_cst); }
  RankId RankOf(int member) const { return RankId(communicator_.members[static_cast<std::size_t>(member)]); }

  // Returns what this rank has told.
  std::uint64_t Tell(const MemoryKind& device) {
    std::uint64_t known = self_->gpu.load(std::memory_order_seq_cst);
    if (known != kUnknown) return known;
    int version = 0;
    const Status status = Open(&version);
    // The job's log has a line on what was refused.
    if (!status.ok() && !refused_->load(std::memory_order_relaxed)) LogHostWay(device, status.message());
    self_->version.store(static_cast<std::uint32_t>(version), std::memory_order_seq_cst);
    self_->board.store(device.board(), std::memory_order_relaxed);
    const std::uint64_t gpu = status.ok() ? device.id() : kNone;
    return self_->gpu.compare_exchange_strong(known, gpu, std::memory_order_seq_cst) ? gpu : known;
  }

  Status Open(int* version) const {
    const tf_smddp::Config& config = *communicator_.config;
    if (!config.nccl) return Internal("SMDDP_NCCL=0");
    if (refused_->load(std::memory_order_relaxed)) return Internal("NCCL does not work here");
    if (config.nccl_blocks) {
      return Internal("NCCL_COMM_BLOCKING=1 lets NCCL's calls wait where nothing can end them; unset it");
    }
    Status status;
    const Library* const library = NcclTransfer::SharedLibrary(config.nccl_library, &status);
    if (library == nullptr) return status;
    status = library->Check("ncclGetVersion", library->GetVersion(version));
    if (!status.ok()) return status;
    communicator_.logger->Log(
        LogLevel::kInfo, "NCCL " + library->version + " (" + library->path + ") reduces tensors of GPUs");
    if (*version < kOldestAdvised && communicator_.rank() == RankId(0)) LogOld(*library);
    return {};
  }

  // False if they will never all use NCCL, as far as this rank knows.
  bool MembersMayUseIt(const MemoryKind& device, RankId elsewhere) const {
    std::uint32_t version = 0;
    const int misfit = FindMisfit(&version);
    if (misfit >= 0) {
      if (!refused_->load(std::memory_order_relaxed)) LogMisfit(device, misfit);
      return false;
    }
    if (!elsewhere.valid()) return true;
    LogHostWay(device,
               "rank " + std::to_string(elsewhere.value()) +
                   " does not use NCCL, or shares its GPU, or has another version of NCCL than rank " +
                   std::to_string(communicator_.hosts.front().front()));
    return false;
  }

  void LogMisfit(const MemoryKind& device, int misfit) const {
    const std::string rank = "rank " + std::to_string(RankOf(misfit).value());
    int sharing = -1;
    for (int other = 0; other < misfit; ++other) {
      if (SharesBoard(misfit, other)) sharing = other;
    }
    if (GpuOf(misfit) == kNone) {
      LogHostWay(device, rank + " does not use NCCL");
    } else if (sharing >= 0) {
      LogHostWay(device, "rank " + std::to_string(RankOf(sharing).value()) + " and " + rank +
                             " have parts of one GPU (MIG), which NCCL does not join");
    } else if (communicator_.config->nccl_required) {
      // Else engine/devices/gpu_places.h warns of a GPU that ranks share.
      LogHostWay(device, rank + " shares its GPU, or has another version of NCCL");
    }
  }

  void LogOld(const Library& library) const {
    static std::once_flag logged;
    std::call_once(logged, [&] {
      communicator_.logger->Log(
          LogLevel::kWarning,
          "NCCL " + library.version + " (" + library.path +
              ") is old: before 2.18.5, NCCL may hang when it starts, or when the job ends after an error. "
              "Remedy: pip install --upgrade nvidia-nccl-cu12");
    });
  }

  // One warning for the job; or its end.
  void LogHostWay(const MemoryKind& device, const std::string& reason) const {
    if (communicator_.config->nccl_required) {
      return communicator_.fail_job("SMDDP_NCCL=required, and NCCL is not used: " + reason);
    }
    if (communicator_.rank() != RankId(0)) return;
    static std::once_flag logged;
    std::call_once(logged, [&] {
      communicator_.logger->Log(
          LogLevel::kWarning,
          "tensors of " + device.name() + " are copied to the host's memory and reduced there: " + reason);
    });
  }

  const CommunicatorView communicator_;
  const MemberUse* const members_;
  MemberUse* const self_;
  const NcclTransfer* const transfer_;
  std::atomic<bool>* const refused_;  // this rank has, for some communicator
};

class OnGpus : public Backend {
 public:
  std::size_t SharedBytes(const tf_smddp::Config&, int) const override { return sizeof(Shared); }

  Parts Join(const CommunicatorView& communicator) override {
    auto* const shared = reinterpret_cast<Shared*>(communicator.shared);
    // The world comes first, before there are other threads.
    if (turns_ == nullptr) {
      turns_ = std::make_unique<Turns>(communicator.turn_counter);
      communicators_ = std::make_shared<Communicators>(
          communicator.wire == nullptr ? std::chrono::milliseconds(0) : kNewsPatience);
    }
    Parts parts;
    auto transfer =
        std::make_unique<NcclTransfer>(communicator, &shared->meeting, turns_.get(), communicators_);
    parts.keeper = std::make_unique<Keeper>(communicator, shared->uses, transfer.get(), &refused_);
    parts.transfers.push_back(std::move(transfer));
    return parts;
  }

  void EndWork() override { communicators_->AbortAll(); }

 private:
  std::unique_ptr<Turns> turns_;
  std::shared_ptr<Communicators> communicators_;
  // NCCL was refused for one communicator. Those whose members have not told yet do not try it.
  std::atomic<bool> refused_{false};
};

}  // namespace

std::unique_ptr<Backend> NcclBackend() { return std::make_unique<OnGpus>(); }

}  // namespace tf_smddp::nccl
