#include "kernels/engine/job/local_group.h"

#include <algorithm>
#include <utility>

namespace tf_smddp {

LocalGroup::LocalGroup(Job* job, int region, std::vector<int> ranks)
    : job_(job), region_(region), ranks_(std::move(ranks)) {
  for (const int rank : ranks_) locals_.push_back(job->LocalRankOf(rank));
  index_ = IndexOf(job->rank());
}

Status LocalGroup::Open(Job* job, int region, std::vector<int> ranks, bool wired,
                        std::unique_ptr<LocalGroup>* group) {
  std::unique_ptr<LocalGroup> opening(new LocalGroup(job, region, std::move(ranks)));
  Status status = job->segment().OpenCommunicator(region, opening->size(), wired, &opening->segment_);
  if (!status.ok()) return status;
  *group = std::move(opening);
  return {};
}

int LocalGroup::IndexOf(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() || *found != rank ? -1 : static_cast<int>(found - ranks_.begin());
}

void LocalGroup::RingOthers() {
  for (int member = 0; member < size(); ++member) {
    if (member != index_) bell(member).Ring();
  }
}

void LocalGroup::RingAll() {
  for (int member = 0; member < size(); ++member) bell(member).Ring();
}

}  // namespace tf_smddp
