// LocalGroup: the members of a communicator that are on this host, and the memory that they share.
//
// Place in the stack: above job.h, inside communicator.h. A *member* is numbered within the group, 0 to
// size() - 1, in the order of the ranks in the job. Requests and threads are elsewhere.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_LOCAL_GROUP_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_LOCAL_GROUP_H_

#include <memory>
#include <vector>

#include "kernels/control/communicator_segment.h"
#include "kernels/control/doorbell.h"
#include "kernels/engine/job/job.h"

namespace tf_smddp {

class LocalGroup {
 public:
  // Maps what the members share, in `region` of the control segment. `ranks` of the job, ascending; this rank
  // is among them. `wired`: the communicator has more ranks on other hosts. `job` outlives it.
  static Status Open(Job* job, int region, std::vector<int> ranks, bool wired,
                     std::unique_ptr<LocalGroup>* group);

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }    // this rank's
  int region() const { return region_; }  // of the control segment
  const std::vector<int>& ranks() const { return ranks_; }
  int rank_of(int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  int IndexOf(int rank) const;  // -1 when it is no member

  // The member that runs the relay.
  bool is_relay() const { return index_ == 0; }
  Doorbell& relay_bell() { return bell(0); }

  CommunicatorSegment& segment() { return *segment_; }
  ReadinessTable& table() { return segment_->table(); }
  MemberRecord& self() { return segment_->member(index_); }
  Doorbell& bell(int member) {
    return job_->segment().bell(region_, locals_[static_cast<std::size_t>(member)]);
  }
  const ArenaView& view(int member) const { return job_->view(locals_[static_cast<std::size_t>(member)]); }
  bool HasShutDown(int member) const { return job_->HasLeft(locals_[static_cast<std::size_t>(member)]); }
  // The record that the member publishes to the others, for all communicators together.
  const RankRecord& record(int member) const {
    return job_->segment().rank(locals_[static_cast<std::size_t>(member)]);
  }

  // Wakes the members' progress threads; see Note [No lost wake-up] in kernels/control/doorbell.h. Any
  // thread.
  void RingSelf() { bell(index_).Ring(); }
  void RingOthers();
  void RingAll();

 private:
  LocalGroup(Job* job, int region, std::vector<int> ranks);

  Job* const job_;
  const int region_;
  const std::vector<int> ranks_;
  std::vector<int> locals_;  // local rank of each member
  int index_ = 0;
  std::unique_ptr<CommunicatorSegment> segment_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_LOCAL_GROUP_H_
