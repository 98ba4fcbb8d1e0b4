// Job: the memory and the peers that one rank shares with the other ranks of its host, after the bootstrap.
//
// Place in the stack: the bottom of engine/; communicators and the watcher work on it. Requests and threads
// are elsewhere.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/common/status.h"
#include "kernels/control/bootstrap_result.h"
#include "kernels/control/job_segment.h"
#include "kernels/memory/arena.h"

namespace tf_smddp {

class Job {
 public:
  // Collective: every rank must call this. Meets the other ranks and maps their shared memory. Ranks that are
  // threads of one process share `mappings`. Makes an arena if `arena` is nullptr.
  static Status Join(const Config& config, std::shared_ptr<MappingCache> mappings,
                     std::shared_ptr<Arena> arena, std::unique_ptr<Job>* job);

  int rank() const { return config_.rank; }
  int size() const { return config_.local_size; }

  const Config& config() const { return config_; }
  const Logger& logger() const { return logger_; }
  JobSegment& segment() { return *segment_; }
  Arena& arena() { return *arena_; }
  const std::shared_ptr<Arena>& shared_arena() const { return arena_; }
  const ArenaView& view(int rank) const { return views_[static_cast<std::size_t>(rank)]; }
  const LocalPeer& peer(int rank) const { return bootstrap_.peers[static_cast<std::size_t>(rank)]; }

  // Wakes all progress threads of all ranks; see Note [No lost wake-up] in kernels/control/doorbell.h. Any
  // thread.
  void RingAll();

  // Ends the job for all ranks with `text`, unless it has ended already. Any thread.
  void Abort(const std::string& text);
  bool aborted() { return segment_->abort().raised(); }
  std::string AbortText() { return segment_->abort().Text(); }

  // Returns the mask of the ranks that have shut down in good order. Any thread.
  std::uint64_t LeftMask();

 private:
  explicit Job(const Config& config)
      : config_(config), logger_(static_cast<LogLevel>(config.log_level), config.rank) {}

  const Config config_;
  const Logger logger_;
  BootstrapResult bootstrap_;
  std::unique_ptr<JobSegment> segment_;
  std::shared_ptr<Arena> arena_;
  std::vector<ArenaView> views_;  // by rank
};

// "rank 2", "ranks 0, 2": the set bits of `mask`.
std::string RankList(std::uint64_t mask);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_H_
