#include "kernels/engine/starvation.h"

#include <cstddef>
#include <utility>

namespace tf_smddp {

void Starvation::Starved(std::uint64_t number, const std::vector<CommunicatorId>& calls,
                         const std::vector<WaitingRequest>& waiting, const std::string& remedy) {
  std::lock_guard<std::mutex> lock(mu_);
  job_->segment().rank(job_->local_rank()).progress.starved().store(number, std::memory_order_seq_cst);
  std::vector<std::uint64_t> published;
  RankSet starved;
  for (int local = 0; local < job_->local_size(); ++local) {
    published.push_back(job_->segment().rank(local).progress.starved().load(std::memory_order_seq_cst));
    if (published.back() != 0) starved.Add(RankId(job_->RankOf(local)));
  }
  RankSet culprits;  // the starved ranks that this rank waits for
  for (const CommunicatorId call : calls) {
    RankSet missing;
    for (const WaitingRequest& each : waiting) {
      const bool for_ranks = !each.request.ready && each.request.device.empty();
      if (each.request.communicator == call && for_ranks) missing |= each.missing;
    }
    missing &= starved;
    if (missing.empty()) {  // this call may end
      seen_.clear();
      return;
    }
    culprits |= missing;
  }
  const Clock::time_point now = Clock::now();
  if (published != seen_) {
    seen_ = std::move(published);
    since_ = now;
  }
  if (now - since_ < kPatience || job_->aborted()) return;
  job_->Abort(
      "rank " + std::to_string(job_->rank()) + " and " + RankList(culprits) +
      " would wait for each other for ever: on each of them, waiting collectives of compiled functions "
      "(jit_compile=True; " +
      std::to_string(calls.size()) + " on rank " + std::to_string(job_->rank()) +
      ") block all threads that could run the functions for which the "
      "others wait. " +
      remedy);
}

void Starvation::Fed() {
  std::lock_guard<std::mutex> lock(mu_);
  job_->segment().rank(job_->local_rank()).progress.starved().store(0, std::memory_order_seq_cst);
  seen_.clear();
}

}  // namespace tf_smddp
