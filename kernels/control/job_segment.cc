#include "kernels/control/job_segment.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace tf_smddp {
namespace {

constexpr std::uint64_t kMagic = 0x33305044444d53u;  // "SMDDP03"

// Communicators other than the world have few keys: the tensors of a few groups.
constexpr std::int64_t kMaxSmallSlots = 16384;

}  // namespace

std::size_t JobSegment::HeadBytes() {
  return (sizeof(Head) + kLargestPage - 1) / kLargestPage * kLargestPage;
}

CommunicatorSegment::Layout JobSegment::LayoutOf(int region, int num_ranks, bool wired, const Config& config,
                                                 const Backends& backends) {
  const std::int64_t slots = region == 0 ? config.table_slots : std::min(config.table_slots, kMaxSmallSlots);
  std::size_t backend_bytes = 0;
  for (const auto& backend : backends) backend_bytes += backend->SharedBytes(config, num_ranks);
  return {static_cast<std::size_t>(slots), num_ranks, backend_bytes, wired};
}

std::size_t JobSegment::RegionBytes(int region, const Config& config, const Backends& backends) {
  return LayoutOf(region, config.local_size, config.size > config.local_size, config, backends).Bytes();
}

std::size_t JobSegment::RegionOffset(int region, const Config& config, const Backends& backends) {
  if (region == 0) return HeadBytes();
  return HeadBytes() + RegionBytes(0, config, backends) +
         static_cast<std::size_t>(region - 1) * RegionBytes(1, config, backends);
}

std::size_t JobSegment::MappedBytes(const Config& config, const Backends& backends) {
  return RegionOffset(1, config, backends);
}

Status JobSegment::Create(const Config& config, const Backends& backends, UniqueFd* fd) {
  int communicators = kMaxCommunicators;
  rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    while (communicators > 1 && RegionOffset(communicators, config, backends) > limit.rlim_cur)
      --communicators;
  }
  const std::size_t bytes = RegionOffset(communicators, config, backends);
  Status status = CreateSharedMemory("smddp-control", bytes, fd);
  if (!status.ok()) return status;
  MappingCache mappings;
  std::shared_ptr<Mapping> mapping;
  status = mappings.MapRange(fd->get(), bytes, 0, HeadBytes(), &mapping);
  if (!status.ok()) return status;
  // All other fields start as zeros, as the new segment is.
  reinterpret_cast<Head*>(mapping->data())->magic = kMagic;
  return {};
}

Status JobSegment::Open(UniqueFd fd, const Config& config, const Backends& backends,
                        std::shared_ptr<MappingCache> mappings, std::unique_ptr<JobSegment>* segment) {
  const Status other_version = Internal(
      "the control segment was made by another version of tf_smddp, or with other settings; install one "
      "version for all ranks");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return other_version;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  int communicators = kMaxCommunicators;
  while (communicators > 0 && RegionOffset(communicators, config, backends) != bytes) --communicators;
  if (communicators == 0) return other_version;
  std::shared_ptr<Mapping> mapping;
  Status status = mappings->MapRange(fd.get(), bytes, 0, HeadBytes(), &mapping);
  if (!status.ok()) return status;
  if (reinterpret_cast<const Head*>(mapping->data())->magic != kMagic) return other_version;
  segment->reset(new JobSegment(std::move(fd), config, backends, communicators, std::move(mappings),
                                std::move(mapping)));
  return {};
}

JobSegment::JobSegment(UniqueFd fd, const Config& config, const Backends& backends, int max_communicators,
                       std::shared_ptr<MappingCache> mappings, std::shared_ptr<Mapping> head)
    : fd_(std::move(fd)),
      config_(config),
      backends_(backends),
      max_communicators_(max_communicators),
      mappings_(std::move(mappings)),
      mapping_(std::move(head)),
      head_(reinterpret_cast<Head*>(mapping_->data())) {}

Status JobSegment::OpenCommunicator(int region, int num_ranks, bool wired,
                                    std::unique_ptr<CommunicatorSegment>* segment) {
  const CommunicatorSegment::Layout layout = LayoutOf(region, num_ranks, wired, config_, backends_);
  std::shared_ptr<Mapping> mapping;
  Status status = mappings_->MapRange(fd_.get(), RegionOffset(max_communicators_, config_, backends_),
                                      RegionOffset(region, config_, backends_), layout.Bytes(), &mapping);
  if (!status.ok()) return status;
  *segment = std::make_unique<CommunicatorSegment>(std::move(mapping), layout, &head_->abort);
  return {};
}

bool JobSegment::LockClaims() {
  while (head_->claims_locked.exchange(1, std::memory_order_acquire) != 0) {
    if (abort().raised()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

Claim JobSegment::ClaimRegion(std::uint32_t id, MemberMask members, bool wired, bool alone, MemberId self,
                              int* region) {
  if (!LockClaims()) return Claim::kAborted;
  int found = 0, free = 0;
  bool disputed = false;
  for (int each = max_communicators_ - 1; each > 0; --each) {
    const Claimed& claimed = head_->claims[each];
    const std::uint32_t communicator = claimed.communicator.load(std::memory_order_relaxed);
    if (communicator == 0) free = each;
    if (communicator != id) continue;
    const bool agrees = claimed.members == members.bits() && (claimed.wired != 0) == wired;
    if (agrees) found = each;
    disputed = disputed || !agrees;
  }
  Claim claim = alone && disputed ? Claim::kDisputed : Claim::kDone;
  if (claim == Claim::kDone && found == 0 && free == 0) claim = Claim::kNoRoom;
  if (claim == Claim::kDone) {
    *region = found > 0 ? found : free;
    Claimed& claimed = head_->claims[*region];
    if (found == 0) claimed.users = alone ? members.bits() : 0;
    claimed.members = members.bits();
    claimed.wired = wired ? 1 : 0;
    claimed.users |= MemberMask::Of(self).bits();
    claimed.communicator.store(id, std::memory_order_seq_cst);
  }
  UnlockClaims();
  return claim;
}

Status JobSegment::LetGo(int region, MemberId self) {
  if (!LockClaims()) return {};
  Claimed& claimed = head_->claims[region];
  claimed.users &= ~MemberMask::Of(self).bits();
  Status status;
  if (claimed.users == 0) {
    claimed.begun.store(0, std::memory_order_seq_cst);
    turn_record(region).Renew();
    status = PunchHole(fd_.get(), RegionOffset(region, config_, backends_),
                       RegionBytes(region, config_, backends_));
    claimed.communicator.store(0, std::memory_order_seq_cst);
  }
  UnlockClaims();
  return status;
}

int JobSegment::RegionOf(std::uint32_t id) const {
  if (id == 0) return 0;
  for (int region = 1; region < max_communicators_; ++region) {
    if (head_->claims[region].begun.load(std::memory_order_seq_cst) == id) return region;
  }
  return -1;
}

}  // namespace tf_smddp
