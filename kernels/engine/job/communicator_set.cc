#include "kernels/engine/job/communicator_set.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <utility>

#include "kernels/common/rank_mask.h"
#include "kernels/common/thread.h"
#include "kernels/engine/job/communicator_checks.h"

namespace tf_smddp {
CommunicatorSet::CommunicatorSet(Job* job, CompletionThread* completions, StallWatch* stalls,
                                 Timeline* timeline)
    : job_(job), completions_(completions), stalls_(stalls), timeline_(timeline), memory_(job->rank()) {}

Status CommunicatorSet::OpenWorld() {
  Known world;
  world.ranks.resize(static_cast<std::size_t>(job_->size()));
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  Status status = Join(kWorld, &world);
  if (!status.ok()) return status;
  world_ = world.membership;
  Add(kWorld, std::move(world));
  return {};
}

Status CommunicatorSet::Join(CommunicatorId id, Known* known) {
  if (!std::binary_search(known->ranks.begin(), known->ranks.end(), job_->rank())) return {};
  known->counters = std::make_shared<CommunicatorCounters>();
  std::unique_ptr<Communicator> communicator;
  Status status = Communicator::Open(job_, id, known->region, known->ranks, &communicator);
  if (!status.ok()) return status;
  try {
    known->membership = std::make_shared<Membership>(std::move(communicator), completions_, &memory_, stalls_,
                                                     known->counters, timeline_);
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  return {};
}

void CommunicatorSet::Add(CommunicatorId id, Known known) {
  if (known.membership != nullptr) known.membership->communicator().Begin();
  job_->logger().Log(LogLevel::kDebug,
                     "process set " + std::to_string(id) + " of " + RankList(RankSet(known.ranks)) +
                         (known.membership != nullptr ? " joined" : " made, without this rank"));
  std::lock_guard<std::mutex> lock(mu_);
  known_[id] = std::move(known);
}

Status CommunicatorSet::CheckNobodyHasLeft() {
  Communicator& world = Find(kWorld)->communicator();
  CommunicatorSegment& segment = world.group().segment();
  const MemberMask active(segment.active().load(std::memory_order_seq_cst));
  RankSet gone = world.ToRanks((MemberMask::FirstN(world.group().size()) - active).bits());
  if (const std::uint64_t left = segment.outside_left().load(std::memory_order_seq_cst); left != 0) {
    gone.Add(RankId(static_cast<int>(left) - 1));
  }
  if (gone.empty()) return {};
  return FailedPrecondition("process sets are made and removed by all ranks, but " + RankList(gone) +
                            " left the set of all ranks");
}

Status CommunicatorSet::Agree(const std::string& label, CommunicatorId id, const Known& known) {
  std::promise<Status> outcome;
  Request request;
  request.operation.kind = CollectiveKind::kCommunicator;
  // The tensor has no elements; the ranks compare the shape, which is part of the manifest.
  request.shape = {0, static_cast<std::int64_t>(id), known.region};
  for (const int rank : known.ranks) request.shape.push_back(rank);
  request.label = std::to_string(id) + label;
  request.done = [&outcome](const Status& status) { outcome.set_value(status); };
  Find(kWorld)->submission().Submit(std::move(request));
  return outcome.get_future().get();
}

Status CommunicatorSet::Create(std::vector<int> ranks, CommunicatorId* id) {
  std::sort(ranks.begin(), ranks.end());
  std::lock_guard<std::mutex> changing(changing_mu_);
  Status status = CheckRanks(ranks, job_->size());
  if (status.ok()) status = CheckNobodyHasLeft();
  if (!status.ok()) return status;
  Known known;
  known.ranks = std::move(ranks);
  known.region = FreeRegion();
  // All ranks know the same communicators, so this fails on all of them or on none.
  const int capacity = job_->segment().max_communicators();
  if (known.region >= capacity) return NoRoomForCommunicator(capacity);
  status = Join(next_id_, &known);
  if (!status.ok()) {
    status =
        Internal("rank " + std::to_string(job_->rank()) + " cannot join a process set: " + status.message());
    Find(kWorld)->failures().FailStep(kNoStep, status.message());  // the others wait in Agree, or will
    return status;
  }
  status = Agree(" of " + RankList(RankSet(known.ranks)), next_id_, known);
  if (!status.ok()) return status;
  *id = next_id_++;
  Add(*id, std::move(known));
  return {};
}

int CommunicatorSet::FreeRegion() {
  std::lock_guard<std::mutex> lock(mu_);
  std::uint64_t used = 0;
  for (const auto& [id, known] : known_) used |= std::uint64_t{1} << known.region;
  int region = 0;
  while (region < kMaxCommunicators && (used >> region & 1) != 0) ++region;
  return region;
}

Status CommunicatorSet::Remove(CommunicatorId id) {
  std::lock_guard<std::mutex> changing(changing_mu_);
  if (id == kWorld) return CannotRemoveWorld();
  if (RanksOf(id).empty()) return WhyNot(id);
  Status status = CheckNobodyHasLeft();
  if (!status.ok()) return status;
  Known known;
  {
    std::lock_guard<std::mutex> lock(mu_);
    known = known_[id];
  }
  if (known.membership != nullptr && !known.membership->pending().WaitEmpty(std::chrono::milliseconds(0))) {
    return FailedPrecondition("process set " + std::to_string(id) + " is in use on rank " +
                              std::to_string(job_->rank()) + "; remove it when its collectives are done");
  }
  status = Agree(", removal", id, known);
  if (!status.ok()) return status;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (known.counters != nullptr) {
      CommunicatorStats last;
      known.counters->Take(/*reset=*/false, &last);
      AddByKind(last.collectives, &gone_);
    }
    known_.erase(id);
  }
  if (known.membership != nullptr) {
    known.membership->submission().Refuse(
        FailedPrecondition("process set " + std::to_string(id) + " was removed meanwhile"));
    // A thread may still be in a call that found the membership earlier: a late Cancel, the end of a step.
    while (known.membership.use_count() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
    job_->arena().Quarantine();  // other ranks may still read and write tensors of it
    known.membership.reset();
  }
  job_->logger().Log(LogLevel::kDebug, "process set " + std::to_string(id) + " removed");
  status = AwaitLetGo(known.region);
  if (status.ok() && known.counters != nullptr) job_->arena().Release();
  return status;
}

Status CommunicatorSet::AwaitLetGo(int region) {
  std::atomic<std::uint64_t>& let_go = job_->segment().let_go(region);
  const std::uint64_t bit = std::uint64_t{1} << job_->local_rank();
  // The last rank clears the region. No rank can use it again meanwhile, since all wait below.
  if ((let_go.fetch_or(bit, std::memory_order_seq_cst) | bit) ==
      MemberMask::FirstN(job_->local_size()).bits()) {
    Status status = job_->segment().ClearCommunicator(region);
    if (!status.ok()) job_->Abort("rank " + std::to_string(job_->rank()) + ": " + status.message());
    let_go.store(0, std::memory_order_seq_cst);
  }
  // This wait is short: all ranks have agreed, and are about to come here.
  for (;;) {
    const Status left =
        CheckNobodyHasLeft();  // before let_go is read: a rank may have done all this, and left
    if (let_go.load(std::memory_order_seq_cst) == 0) return {};
    if (!left.ok()) job_->Abort(left.message());
    if (job_->aborted()) return Internal(job_->AbortText());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::vector<int> CommunicatorSet::RanksOf(CommunicatorId id) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = known_.find(id);
  return found == known_.end() ? std::vector<int>() : found->second.ranks;
}

std::shared_ptr<Membership> CommunicatorSet::Find(CommunicatorId id) {
  // This pointer is not counted, since the world's membership lives as long as this set.
  if (id == kWorld) return {std::shared_ptr<Membership>(), world_.get()};
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = known_.find(id);
  return found == known_.end() ? nullptr : found->second.membership;
}

std::shared_ptr<CommunicatorCounters> CommunicatorSet::CountersOf(CommunicatorId id) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = known_.find(id);
  return found == known_.end() ? nullptr : found->second.counters;
}

void CommunicatorSet::AddStats(bool reset, EngineStats* stats) {
  std::lock_guard<std::mutex> lock(mu_);
  AddByKind(gone_, &stats->collectives);
  if (reset) gone_ = StatsByKind();
  for (const auto& [id, known] : known_) {
    if (known.counters == nullptr) continue;
    CommunicatorStats each;
    each.id = id;
    each.ranks = known.ranks;
    known.counters->Take(reset, &each);
    AddByKind(each.collectives, &stats->collectives);
    stats->communicators.push_back(std::move(each));
  }
}

std::vector<WaitingRequest> CommunicatorSet::CollectWaiting(Clock::time_point before) {
  std::vector<WaitingRequest> waiting;
  // The lock is held meanwhile, so that no membership is removed, or kept alive from here.
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [id, known] : known_) {
    if (known.membership != nullptr) known.membership->submission().CollectWaiting(before, &waiting);
  }
  return waiting;
}

Status CommunicatorSet::WhyNot(CommunicatorId id) {
  const std::vector<int> ranks = RanksOf(id);
  if (ranks.empty()) return NoSuchCommunicator(id);
  return InvalidArgument("rank " + std::to_string(job_->rank()) + " is not in process set " +
                         std::to_string(id) + ", which has " + RankList(RankSet(ranks)));
}

void CommunicatorSet::Ring(CommunicatorId id) {
  if (const std::shared_ptr<Membership> membership = Find(id)) membership->communicator().group().RingSelf();
}

std::vector<std::shared_ptr<Membership>> CommunicatorSet::All() {
  std::vector<std::shared_ptr<Membership>> all;
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [id, known] : known_) {
    if (known.membership != nullptr) all.push_back(known.membership);
  }
  return all;
}

}  // namespace tf_smddp
