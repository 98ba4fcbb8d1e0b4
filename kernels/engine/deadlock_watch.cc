#include "kernels/engine/deadlock_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/common/rank_mask.h"

namespace tf_smddp {
namespace {

// How long nothing moves before a rank looks at its threads; the longest time between two looks at a process
// that was not quiet.
constexpr Clock::duration kMovelessTime = std::chrono::seconds(3);
constexpr Clock::duration kLongestPause = std::chrono::seconds(4);

}  // namespace

DeadlockWatch::DeadlockWatch(Job* job) : job_(job), own_(job->segment().rank(job->local_rank()).progress) {}

bool DeadlockWatch::Look(const CollectWaitingRequests& collect, std::vector<WaitingRequest>* waiting) {
  const Clock::time_point now = Clock::now();
  const std::uint64_t submitted = own_.submitted(), ended = own_.ended();
  if (submitted == ended || submitted != last_submitted_ || ended != last_ended_) {
    last_submitted_ = submitted;
    last_ended_ = ended;
    last_move_ = now;
    quiet_pause_ = kInterval;
    next_quiet_look_ = now;
    quiet_.Reset();
    NotStuck();
    return false;
  }
  if (now - last_move_ < kMovelessTime || now < next_quiet_look_) return false;
  *waiting = collect(now);
  if (!IsStuck(*waiting)) {
    NotStuck();
    return false;
  }
  if (own_.stuck().load(std::memory_order_seq_cst) == 0) {
    MemberMask missing;  // by local rank
    for (const RankId rank : MissingOf(*waiting).ranks()) {
      missing |= MemberMask::Of(MemberId(job_->LocalRankOf(rank.value())));
    }
    own_.stuck_for().store(missing.bits(), std::memory_order_seq_cst);
    own_.stuck_looks().store(0, std::memory_order_seq_cst);
    own_.stuck().store(++stuck_number_, std::memory_order_seq_cst);
  }
  own_.stuck_looks().fetch_add(1, std::memory_order_seq_cst);
  return job_->local_rank() == 0 && AllAreStuck();
}

void DeadlockWatch::NotStuck() {
  own_.stuck().store(0, std::memory_order_seq_cst);
  said_.clear();
}

// Whether this rank was, since it last looked.
bool DeadlockWatch::IsStuck(const std::vector<WaitingRequest>& waiting) {
  bool stuck = waiting.size() == last_submitted_ - last_ended_;
  for (const WaitingRequest& each : waiting) {
    const bool for_ranks = !each.request.ready && each.request.device.empty();
    stuck = stuck && for_ranks && !each.missing.empty() && !each.missing.Contains(RankId(job_->rank()));
  }
  if (!stuck) {
    quiet_.Reset();
    return false;
  }
  if (quiet_.Look()) return own_.submitted() == last_submitted_ && own_.ended() == last_ended_;
  if (quiet_.has_looked()) return false;  // the next look may tell more
  next_quiet_look_ = Clock::now() + quiet_pause_;
  quiet_pause_ = std::min(2 * quiet_pause_, kLongestPause);
  return false;
}

// Whether all ranks were stuck when this was called for the first time since something moved.
bool DeadlockWatch::AllAreStuck() {
  std::vector<std::uint64_t> said, looked;
  for (int local = 0; local < job_->local_size(); ++local) {
    ProgressRecord& record = job_->segment().rank(local).progress;
    said.push_back(record.stuck().load(std::memory_order_seq_cst));
    looked.push_back(record.stuck_looks().load(std::memory_order_seq_cst));
    if (said.back() == 0 || job_->HasLeft(local)) {
      said_.clear();
      return false;
    }
  }
  if (said != said_) {
    said_ = std::move(said);
    looked_ = std::move(looked);
    return false;
  }
  for (std::size_t local = 0; local < looked.size(); ++local) {
    if (looked[local] < looked_[local] + 2) return false;
  }
  return true;
}

RankSet DeadlockWatch::StuckFor(int local) const {
  ProgressRecord& record = job_->segment().rank(local).progress;
  const MemberMask published(record.stuck_for().load(std::memory_order_seq_cst));
  const MemberMask here = MemberMask::FirstN(job_->local_size()) & published;  // others cannot be
  RankSet ranks;
  for (const MemberId each : here) ranks.Add(RankId(job_->RankOf(each.value())));
  return ranks;
}

}  // namespace tf_smddp
