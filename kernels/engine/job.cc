#include "kernels/engine/job.h"

#include <utility>

#include "kernels/collectives/backends/shared_memory/staged_pipeline.h"

namespace tf_smddp {

Status Job::Join(const Config& config, std::shared_ptr<MappingCache> mappings, std::unique_ptr<Job>* job) {
  std::unique_ptr<Job> joining(new Job(config));
  const auto chunk_bytes = static_cast<std::uint64_t>(config.chunk_bytes);
  const std::uint64_t reserve_bytes = StagedPipeline::ReserveBytes(chunk_bytes);
  const auto arena_bytes = static_cast<std::uint64_t>(config.arena_bytes);
  if (arena_bytes < 2 * reserve_bytes) {
    return InvalidArgument("SMDDP_ARENA_BYTES=" + std::to_string(arena_bytes) +
                           " is less than twice the staging " + "reserve of " +
                           std::to_string(reserve_bytes) + " bytes (4 x SMDDP_CHUNK_BYTES); raise it");
  }
  Status status = Arena::Create(arena_bytes, reserve_bytes, mappings.get(), &joining->arena_);
  if (!status.ok()) return status;
  Meeting* meeting = &joining->meeting_;
  status = Bootstrap(config, joining->arena_->fd(), joining->arena_->bytes(), meeting, [&]() -> Status {
    for (LocalPeer& peer : meeting->peers) {
      if (peer.arena_bytes < reserve_bytes)
        return Internal("a rank's arena is smaller than its staging reserve");
      std::shared_ptr<Mapping> mapping;
      Status mapped = mappings->Map(peer.arena.get(), peer.arena_bytes, &mapping);
      if (!mapped.ok()) return mapped;
      joining->views_.emplace_back(std::move(mapping));
      peer.arena.Reset();
    }
    return ControlSegment::Open(meeting->control.get(), config, mappings.get(), &joining->control_);
  });
  if (!status.ok()) return status;
  meeting->control.Reset();
  *job = std::move(joining);
  return {};
}

void Job::RingOthers() {
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) control_->rank(other).bell.Ring();
  }
}

void Job::RingAll() {
  for (int each = 0; each < size(); ++each) control_->rank(each).bell.Ring();
}

void Job::Abort(const std::string& text) {
  if (control_->abort().Raise(text)) logger_.Log(LogLevel::kError, text);
  RingAll();  // also when another rank raised it: that one may have died before it rang
}

std::uint64_t Job::LeftMask() {
  std::uint64_t left = 0;
  for (int each = 0; each < size(); ++each) {
    if (control_->rank(each).left.load(std::memory_order_seq_cst) != 0) left |= std::uint64_t{1} << each;
  }
  return left;
}

}  // namespace tf_smddp
