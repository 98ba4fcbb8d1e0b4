// Job: the memory and the peers that one rank shares with the other ranks of its host, after the bootstrap.
//
// Place in the stack: the bottom of engine/; communicators and the watcher work on it. Requests and threads
// are elsewhere. A *rank* is counted in the job, a *local rank* on its host.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_JOB_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives/backend.h"
#include "kernels/common/clock.h"
#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/common/status.h"
#include "kernels/common/wire.h"
#include "kernels/control/bootstrap.h"
#include "kernels/control/job_segment.h"
#include "kernels/control/relay_message.h"
#include "kernels/engine/devices/bounce_pool.h"
#include "kernels/memory/arena.h"

namespace tf_smddp {

class Job {
 public:
  // Collective: every rank must call this. Meets the other ranks and maps their shared memory. Ranks that are
  // threads of one process share `mappings`. All ranks have the same backends. Makes an arena if `arena` is
  // nullptr. `wire` leads to the other hosts, and outlives the job; nullptr when there are none.
  static Status Join(const Config& config, std::shared_ptr<MappingCache> mappings, Backends backends,
                     std::shared_ptr<Arena> arena, Wire* wire, std::unique_ptr<Job>* job);

  int rank() const { return config_.rank; }
  int size() const { return config_.size; }
  int local_rank() const { return config_.local_rank; }
  int local_size() const { return config_.local_size; }

  // Returns the ranks of the job by host, each in ascending order.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }
  // Returns the ranks of this host; the index is the local rank.
  const std::vector<int>& local_ranks() const { return hosts_[host_]; }
  int RankOf(int local) const { return local_ranks()[static_cast<std::size_t>(local)]; }
  // Returns the local rank of a rank, or -1 for a rank of another host.
  int LocalRankOf(int rank) const;
  Wire* wire() { return wire_; }

  const Config& config() const { return config_; }
  const Logger& logger() const { return logger_; }
  JobSegment& segment() { return *segment_; }
  Arena& arena() { return *arena_; }
  const std::shared_ptr<Arena>& shared_arena() const { return arena_; }
  const std::shared_ptr<BouncePool>& bounce_pool() const { return bounce_pool_; }
  const Backends& backends() const { return backends_; }
  // By local rank.
  const ArenaView& view(int local) const { return views_[static_cast<std::size_t>(local)]; }
  const LocalPeer& peer(int local) const { return bootstrap_.peers[static_cast<std::size_t>(local)]; }

  // Wakes all progress threads of all ranks of this host; see Note [No lost wake-up] in
  // kernels/control/doorbell.h. Any thread.
  void RingAll();

  // Ends the job for all ranks with `text`, unless it has ended already. Logs it then, unless this process
  // has `written` already what went wrong. Any thread.
  void Abort(const std::string& text, bool written = false);
  bool aborted() { return segment_->abort().raised(); }
  std::string AbortText() { return segment_->abort().Text(); }

  // When a rank was last seen to compute while none of its requests was pending, as in an evaluation. Only
  // when there are several hosts. Any thread.
  Clock::time_point last_work(RankId rank) {
    return Clock::time_point(Clock::duration(segment_->last_work(rank.value()).load()));
  }
  void NoteWork(RankId rank) {
    if (rank.value() < 0 || rank.value() >= size()) return;
    segment_->last_work(rank.value()).store(Clock::now().time_since_epoch().count());
  }

  // Sends it to the relays of the world on the other hosts, when there are several. Any thread.
  void TellOtherHosts(const RelayMessage& message);

  // Returns whether a local rank has shut down in good order. Any thread.
  bool HasLeft(int local) {
    return segment_->rank(local).left.load(std::memory_order_seq_cst) != RankRecord::kIsThere;
  }

 private:
  Job(const Config& config, Backends backends, Wire* wire);

  const Config config_;
  const Logger logger_;
  const Backends backends_;
  Wire* const wire_;
  std::vector<std::vector<int>> hosts_;
  std::size_t host_ = 0;  // this one
  BootstrapResult bootstrap_;
  std::unique_ptr<JobSegment> segment_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<BouncePool> bounce_pool_;
  std::vector<ArenaView> views_;  // by local rank
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_JOB_H_
