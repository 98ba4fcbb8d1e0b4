#include "kernels/engine/communicator.h"

#include <algorithm>
#include <utility>

namespace tf_smddp {

Communicator::Communicator(Job* job, CommunicatorId id, int region, std::vector<int> ranks)
    : job_(job), id_(id), region_(region), ranks_(std::move(ranks)), index_(IndexOf(job->rank())) {}

Status Communicator::Open(Job* job, CommunicatorId id, int region, std::vector<int> ranks,
                          std::unique_ptr<Communicator>* communicator) {
  std::unique_ptr<Communicator> opening(new Communicator(job, id, region, std::move(ranks)));
  Status status = job->segment().OpenCommunicator(region, opening->size(), &opening->segment_);
  if (!status.ok()) return status;
  *communicator = std::move(opening);
  return {};
}

int Communicator::IndexOf(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() || *found != rank ? -1 : static_cast<int>(found - ranks_.begin());
}

void Communicator::RingOthers() {
  for (int member = 0; member < size(); ++member) {
    if (member != index_) bell(member).Ring();
  }
}

void Communicator::RingAll() {
  for (int member = 0; member < size(); ++member) bell(member).Ring();
}

bool Communicator::Fail(std::uint64_t incarnation, std::uint64_t origin, const std::string& text) {
  if (!segment_->failure().Raise(incarnation, origin, text)) return false;
  job_->logger().Log(LogLevel::kInfo, "a step fails on all ranks: " + text);
  RingAll();
  return true;
}

std::uint64_t Communicator::ShutDownMask() {
  const std::uint64_t left = job_->LeftMask();
  std::uint64_t members = 0;
  for (int member = 0; member < size(); ++member) {
    if ((left >> rank_of(member) & 1) != 0) members |= std::uint64_t{1} << member;
  }
  return members;
}

std::uint64_t Communicator::ToRanks(std::uint64_t members) const {
  std::uint64_t ranks = 0;
  for (int member = 0; member < size(); ++member) {
    if ((members >> member & 1) != 0) ranks |= std::uint64_t{1} << rank_of(member);
  }
  return ranks;
}

std::string Communicator::Names(std::uint64_t members) const { return RankList(ToRanks(members)); }

void Communicator::LogDebug(const std::string& text) const {
  job_->logger().Log(LogLevel::kDebug, "process set " + std::to_string(id_) + ": " + text);
}

}  // namespace tf_smddp
