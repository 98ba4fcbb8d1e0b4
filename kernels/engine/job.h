// Job: what one rank shares with the others of its host, from the end of the bootstrap on.
//
// Place in the stack: the bottom of engine/; the dispatcher, the comm thread and the watcher all work on it.
// Not here: requests and threads.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/common/status.h"
#include "kernels/control/bootstrap.h"
#include "kernels/control/control_segment.h"
#include "kernels/memory/arena.h"

namespace tf_smddp {

class Job {
 public:
  // Collective: every rank must call this. Meets the other ranks and maps what they share. `mappings` is
  // shared by ranks that are threads of one process.
  static Status Join(const Config& config, std::shared_ptr<MappingCache> mappings, std::unique_ptr<Job>* job);

  int rank() const { return config_.rank; }
  int size() const { return config_.local_size; }
  std::uint64_t everyone() const {
    return size() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size()) - 1;
  }

  const Config& config() const { return config_; }
  const Logger& logger() const { return logger_; }
  ControlSegment& control() { return *control_; }
  RankRecord& self() { return control_->rank(rank()); }
  Arena& arena() { return *arena_; }
  const ArenaView& view(int rank) const { return views_[rank]; }
  const LocalPeer& peer(int rank) const { return meeting_.peers[rank]; }

  // Wakes comm threads; see Note [No lost wake-up] in kernels/control/doorbell.h. Any thread.
  void RingSelf() { self().bell.Ring(); }
  void RingOthers();
  void RingAll();

  // Ends the job for all ranks with `text`, unless it has ended already. Any thread.
  void Abort(const std::string& text);
  bool aborted() { return control_->abort().raised(); }
  std::string AbortText() { return control_->abort().Text(); }

  // Bits of the ranks that have shut down in good order. Any thread.
  std::uint64_t LeftMask();

 private:
  explicit Job(const Config& config)
      : config_(config), logger_(static_cast<LogLevel>(config.log_level), config.rank) {}

  const Config config_;
  const Logger logger_;
  Meeting meeting_;
  std::unique_ptr<ControlSegment> control_;
  std::unique_ptr<Arena> arena_;
  std::vector<ArenaView> views_;  // by rank
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_H_
