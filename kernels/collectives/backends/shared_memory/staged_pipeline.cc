#include "kernels/collectives/backends/shared_memory/staged_pipeline.h"

#include <algorithm>
#include <utility>

#include "kernels/common/config.h"

namespace tf_smddp {

StagedPipeline::StagedPipeline(int index, std::vector<std::byte*> windows,
                               std::vector<StagedProgress> progress, std::uint64_t chunk_bytes)
    : index_(index),
      windows_(std::move(windows)),
      progress_(std::move(progress)),
      chunk_bytes_(chunk_bytes) {}

void StagedPipeline::Reset() {
  transfers_.clear();
  plan_.Clear();
  base_ = staged_ = combined_ = copied_out_ = 0;
}

void StagedPipeline::Start(std::vector<StagedTransfer> transfers) {
  base_ = copied_out_;
  transfers_ = std::move(transfers);
  plan_.Clear();
  for (const StagedTransfer& transfer : transfers_) {
    plan_.Add(FindCollective(transfer.call.kind).NumChunks(transfer.call, Capacity(transfer.call)), 1);
  }
}

std::uint64_t StagedPipeline::Capacity(const Call& call) const {
  return chunk_bytes_ / DTypeBytes(call.dtype);
}

std::uint64_t StagedPipeline::Slowest(std::atomic<std::uint64_t>* StagedProgress::* counter) const {
  std::uint64_t slowest = ~std::uint64_t{0};
  for (const StagedProgress& progress : progress_) {
    slowest = std::min(slowest, (progress.*counter)->load(std::memory_order_acquire));
  }
  return slowest;
}

bool StagedPipeline::Step() {
  const std::uint64_t end = base_ + plan_.total();
  bool moved = false;
  // The end of the pipe first: it frees windows for the other ranks.
  if (copied_out_ < combined_ && copied_out_ < Slowest(&StagedProgress::combined)) {
    Run(&Collective::StageOut, copied_out_);
    progress_[index_].copied_out->store(++copied_out_, std::memory_order_release);
    moved = true;
  }
  if (combined_ < staged_ && combined_ < Slowest(&StagedProgress::staged)) {
    Run(&Collective::Combine, combined_);
    progress_[index_].combined->store(++combined_, std::memory_order_release);
    moved = true;
  }
  if (staged_ < end && staged_ < Slowest(&StagedProgress::copied_out) + kWindows) {
    Run(&Collective::StageIn, staged_);
    progress_[index_].staged->store(++staged_, std::memory_order_release);
    moved = true;
  }
  return moved;
}

void StagedPipeline::Run(Method method, std::uint64_t chunk) const {
  const ChunkPlan::Chunk part = plan_.At(chunk - base_);
  const StagedTransfer& transfer = transfers_[part.item];
  std::byte* windows[kMaxLocalRanks];
  for (std::size_t rank = 0; rank < transfer.members.size(); ++rank) {
    windows[rank] =
        windows_[static_cast<std::size_t>(transfer.members[rank])] + chunk % kWindows * chunk_bytes_;
  }
  const StagedChunk staged = {transfer.rank,
                              part.begin,
                              Capacity(transfer.call),
                              static_cast<const std::byte*>(transfer.input),
                              static_cast<std::byte*>(transfer.output),
                              windows};
  (FindCollective(transfer.call.kind).*method)(transfer.call, staged);
}

}  // namespace tf_smddp
