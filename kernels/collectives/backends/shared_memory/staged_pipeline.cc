#include "kernels/collectives/backends/shared_memory/staged_pipeline.h"

#include <algorithm>
#include <utility>

#include "kernels/common/config.h"

namespace tf_smddp {

StagedPipeline::StagedPipeline(int rank, std::vector<std::byte*> reserves,
                               std::vector<StagedProgress> progress, std::uint64_t chunk_bytes)
    : rank_(rank),
      reserves_(std::move(reserves)),
      progress_(std::move(progress)),
      chunk_bytes_(chunk_bytes) {}

void StagedPipeline::Start(std::vector<StagedTransfer> transfers) {
  base_ = copied_out_;
  transfers_ = std::move(transfers);
  plan_.Clear();
  for (const StagedTransfer& transfer : transfers_) {
    plan_.Add(transfer.call.count, chunk_bytes_ / DTypeBytes(transfer.call.dtype));
  }
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
    progress_[rank_].copied_out->store(++copied_out_, std::memory_order_release);
    moved = true;
  }
  if (combined_ < staged_ && combined_ < Slowest(&StagedProgress::staged)) {
    Run(&Collective::Combine, combined_);
    progress_[rank_].combined->store(++combined_, std::memory_order_release);
    moved = true;
  }
  if (staged_ < end && staged_ < Slowest(&StagedProgress::copied_out) + kWindows) {
    Run(&Collective::StageIn, staged_);
    progress_[rank_].staged->store(++staged_, std::memory_order_release);
    moved = true;
  }
  return moved;
}

void StagedPipeline::Run(Method method, std::uint64_t chunk) const {
  const ChunkPlan::Chunk part = plan_.At(chunk - base_);
  const StagedTransfer& transfer = transfers_[part.item];
  const std::uint64_t offset = part.begin * DTypeBytes(transfer.call.dtype);
  std::byte* windows[kMaxLocalRanks];
  for (int rank = 0; rank < transfer.call.num_ranks; ++rank) {
    windows[rank] = reserves_[rank] + chunk % kWindows * chunk_bytes_;
  }
  const StagedChunk staged = {rank_, part.count, static_cast<const std::byte*>(transfer.input) + offset,
                              static_cast<std::byte*>(transfer.output) + offset, windows};
  (FindCollective(transfer.call.kind).*method)(transfer.call, staged);
}

}  // namespace tf_smddp
