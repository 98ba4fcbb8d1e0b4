// Communicator: the identity of a group of ranks, its members on this host, the way to the others, and the
// transfers that move their data.
//
// Place in the stack: above local_group.h, below member_state.h. Requests and threads are elsewhere.
#ifndef TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_H_
#define TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/collectives/backend.h"
#include "kernels/common/rank_mask.h"
#include "kernels/common/rank_set.h"
#include "kernels/common/wire.h"
#include "kernels/engine/job/job.h"
#include "kernels/engine/job/local_group.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class Communicator;

// Reaches a communicator from threads that are not the engine's, and may come after its end: those that end
// work on devices.
class CommunicatorHandle {
 public:
  explicit CommunicatorHandle(Communicator* communicator) : communicator_(communicator) {}

  // Calls `body` with the communicator, or does nothing after its end. `body` returns quickly. Any thread.
  template <typename Body>
  void Call(Body body) {
    std::lock_guard<std::mutex> lock(mu_);
    if (communicator_ != nullptr) body(communicator_);
  }

  // The communicator ends. No `body` runs when this returns, or later.
  void End() {
    std::lock_guard<std::mutex> lock(mu_);
    communicator_ = nullptr;
  }

 private:
  std::mutex mu_;
  Communicator* communicator_;  // guarded by mu_
};

class Communicator {
 public:
  // `ranks` of the job, ascending; this rank is among them. See LocalGroup::Open.
  static Status Open(Job* job, CommunicatorId id, int region, std::vector<int> ranks,
                     std::unique_ptr<Communicator>* communicator);

  ~Communicator();

  // Marks all members as active. Each member calls it before its first request; if all ranks of the job make
  // the communicator, when these have agreed on it.
  void Begin() {
    job_->segment().Begin(group_->region(), id_);
    group_->segment().Begin();
  }

  CommunicatorId id() const { return id_; }
  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  Job& job() { return *job_; }
  const Config& config() const { return job_->config(); }
  LocalGroup& group() { return *group_; }
  const std::shared_ptr<CommunicatorHandle>& handle() const { return handle_; }

  // From all backends; one that comes first takes a request first.
  const std::vector<std::unique_ptr<Transfer>>& transfers() const { return transfers_; }
  // nullptr if no backend moves tensors on devices.
  DeviceKeeper* keeper() { return keeper_.get(); }

  // Whether there are ranks on other hosts. If so, wire() leads to them.
  bool wired() const { return hosts_.size() > 1; }
  Wire& wire() { return *job_->wire(); }
  // Returns the ranks by host, this one's included; hosts without any are left out. The relay of a host is
  // its first rank, and the *head* is the relay of the first host.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }
  RankId head() const { return RankId(hosts_.front().front()); }

  // Fails `incarnation` for all members with `text`, if it is running. Returns false if it is not, or if
  // another rank of this host was the first; see FailureRecord::Raise. Any thread.
  bool Fail(std::uint64_t incarnation, std::uint64_t origin, const std::string& text);
  // As Fail, for this host alone. Between hosts the head has decided it; then only the relay's progress
  // thread may call this.
  bool FailHere(std::uint64_t incarnation, std::uint64_t origin, const std::string& text,
                RankId last_to_leave = {});

  // Returns the mask of the members that have shut down in good order. The place outside() is in it when a
  // rank of another host has, that had not left the communicator before. Any thread.
  std::uint64_t ShutDownMask();

  // Returns whether all hosts know that all ranks have shut down. Only when wired(). Any thread.
  bool AllAreKnownToHaveShutDown();

  // Converts a mask of members into a set of ranks of the job; outside() stands for all ranks of other hosts.
  // Ignores bits that are no member's.
  RankSet ToRanks(std::uint64_t members) const;

  // Writes a line for debugging that names the process set.
  void LogDebug(const std::string& text) const;

  // Returns "ranks 0, 2" (of the job) for a mask of members.
  std::string Names(std::uint64_t members) const;

 private:
  Communicator(Job* job, CommunicatorId id, std::vector<int> ranks);
  void JoinBackends();
  void AskForTurn(std::uint64_t batch);

  Job* const job_;
  const CommunicatorId id_;
  const std::vector<int> ranks_;
  std::vector<std::vector<int>> hosts_;
  RankSet outside_ranks_;  // those on other hosts
  std::unique_ptr<LocalGroup> group_;
  const std::shared_ptr<CommunicatorHandle> handle_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::unique_ptr<DeviceKeeper> keeper_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_JOB_COMMUNICATOR_H_
