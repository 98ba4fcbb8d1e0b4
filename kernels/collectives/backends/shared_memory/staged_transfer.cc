#include "kernels/collectives/backends/shared_memory/staged_transfer.h"

#include <algorithm>
#include <utility>

#include "kernels/common/config.h"

namespace tf_smddp {
namespace {

// The most chunks that a rank can have staged at a time.
constexpr std::uint64_t kWindows = 4;

}  // namespace

std::size_t StagedTransfer::SharedBytes(std::uint64_t chunk_bytes, int num_members) {
  return static_cast<std::size_t>(num_members) * (sizeof(StagedProgress) + kWindows * chunk_bytes);
}

StagedTransfer::StagedTransfer(std::byte* shared, int index, int num_members, std::uint64_t chunk_bytes)
    : progress_(reinterpret_cast<StagedProgress*>(shared)),
      windows_(shared + static_cast<std::size_t>(num_members) * sizeof(StagedProgress)),
      index_(index),
      num_members_(num_members),
      chunk_bytes_(chunk_bytes) {}

void StagedTransfer::Renew(MemberMask active) {
  for (const MemberId member : active) progress_[member.index()].Store(0);
}

void StagedTransfer::Reset() {
  requests_.clear();
  plan_.Clear();
  done_ = true;
  base_ = staged_ = combined_ = copied_out_ = 0;
}

std::uint64_t StagedTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  base_ = copied_out_;
  requests_ = std::move(requests);
  plan_.Clear();
  MemberMask participants;
  for (const ResolvedRequest* request : requests_) {
    plan_.Add(request->collective->NumChunks(request->call, Capacity(request->call)), 1);
    participants |= request->participants;
  }
  done_ = requests_.empty();
  return static_cast<std::uint64_t>(participants.size());
}

std::uint64_t StagedTransfer::Capacity(const Call& call) const {
  return chunk_bytes_ / DTypeBytes(call.operation.dtype);
}

std::uint64_t StagedTransfer::Slowest(std::atomic<std::uint64_t> StagedProgress::* counter) const {
  std::uint64_t slowest = ~std::uint64_t{0};
  for (int member = 0; member < num_members_; ++member) {
    slowest = std::min(slowest, (progress_[member].*counter).load(std::memory_order_acquire));
  }
  return slowest;
}

Transfer::Progress StagedTransfer::Step() {
  const std::uint64_t end = base_ + plan_.total();
  bool moved = false;
  // The last step comes first, since it frees windows for the other ranks.
  if (copied_out_ < combined_ && copied_out_ < Slowest(&StagedProgress::combined)) {
    Run(&Collective::StageOut, copied_out_);
    progress_[index_].copied_out.store(++copied_out_, std::memory_order_release);
    moved = true;
  }
  if (combined_ < staged_ && combined_ < Slowest(&StagedProgress::staged)) {
    Run(&Collective::Combine, combined_);
    progress_[index_].combined.store(++combined_, std::memory_order_release);
    moved = true;
  }
  if (staged_ < end && staged_ < Slowest(&StagedProgress::copied_out) + kWindows) {
    Run(&Collective::StageIn, staged_);
    progress_[index_].staged.store(++staged_, std::memory_order_release);
    moved = true;
  }
  done_ = copied_out_ == end;
  return {moved || done_, done_, /*peers_wait=*/moved};
}

void StagedTransfer::Run(Method method, std::uint64_t chunk) const {
  const ChunkPlan::Chunk part = plan_.At(chunk - base_);
  const ResolvedRequest& request = *requests_[part.item];
  std::byte* windows[kMaxLocalRanks];
  for (std::size_t i = 0; i < request.members.size(); ++i) {
    windows[i] = windows_ + (request.members[i].index() * kWindows + chunk % kWindows) * chunk_bytes_;
  }
  const StagedChunk staged = {request.self,
                              part.begin,
                              Capacity(request.call),
                              static_cast<const std::byte*>(request.inputs[request.self.index()]),
                              static_cast<std::byte*>(request.outputs[request.self.index()]),
                              windows};
  (request.collective->*method)(request.call, staged);
}

}  // namespace tf_smddp
