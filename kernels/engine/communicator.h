// Communicator: the shared memory, doorbells and identity of a group of ranks, as one member sees them.
//
// Place in the stack: above job.h, below member_state.h. Requests and threads are elsewhere. Members are
// numbered within the communicator, 0 to size() - 1, in the order of their ranks in the job.
#ifndef TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_H_
#define TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/rank_mask.h"
#include "kernels/control/communicator_segment.h"
#include "kernels/control/doorbell.h"
#include "kernels/engine/job.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class Communicator {
 public:
  // Maps what the members of `id` share, in `region` of the control segment. `ranks` of the job, ascending;
  // this rank is among them. `job` outlives it.
  static Status Open(Job* job, CommunicatorId id, int region, std::vector<int> ranks,
                     std::unique_ptr<Communicator>* communicator);

  // Marks all members as active. Each member calls it when all ranks have agreed on the communicator, before
  // its first request.
  void Begin() { segment_->Begin(MemberMask::FirstN(size()).bits()); }

  CommunicatorId id() const { return id_; }
  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }  // this rank's
  int rank_of(int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  int IndexOf(int rank) const;  // -1 when it is no member

  Job& job() { return *job_; }
  const Config& config() const { return job_->config(); }
  CommunicatorSegment& segment() { return *segment_; }
  ReadinessTable& table() { return segment_->table(); }
  MemberRecord& self() { return segment_->member(index_); }
  Doorbell& bell(int member) { return job_->segment().bell(region_, rank_of(member)); }
  const ArenaView& view(int member) const { return job_->view(rank_of(member)); }

  // Wakes the members' progress threads; see Note [No lost wake-up] in kernels/control/doorbell.h. Any
  // thread.
  void RingSelf() { bell(index_).Ring(); }
  void RingOthers();
  void RingAll();

  // Fails `incarnation` for all members with `text`; see FailureRecord::Raise. Any thread.
  bool Fail(std::uint64_t incarnation, std::uint64_t origin, const std::string& text);

  // Whether work in `incarnation` must stop. Any thread.
  bool Broken(std::uint64_t incarnation) {
    return segment_->failure().Failed(incarnation) || job_->aborted();
  }

  // Returns the mask of the members that have shut down in good order. Any thread.
  std::uint64_t ShutDownMask();

  // Converts a mask of members into a mask of ranks of the job; ignores bits that are no member's.
  std::uint64_t ToRanks(std::uint64_t members) const;

  // Writes a line for debugging that names the process set.
  void LogDebug(const std::string& text) const;

  // Returns "ranks 0, 2" (of the job) for a mask of members.
  std::string Names(std::uint64_t members) const;

 private:
  Communicator(Job* job, CommunicatorId id, int region, std::vector<int> ranks);

  Job* const job_;
  const CommunicatorId id_;
  const int region_;
  const std::vector<int> ranks_;
  const int index_;
  std::unique_ptr<CommunicatorSegment> segment_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_COMMUNICATOR_H_
