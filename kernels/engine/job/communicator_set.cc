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
  Status status = Join(kWorld, /*alone=*/false, &world);
  if (!status.ok()) return status;
  world_ = world.membership;
  Add(kWorld, world);
  return {};
}

Status CommunicatorSet::Join(CommunicatorId id, bool alone, Known* known) {
  if (!std::binary_search(known->ranks.begin(), known->ranks.end(), job_->rank())) return {};
  const MemberId self(job_->local_rank());
  if (id != kWorld) {
    MemberMask here;  // by local rank
    for (const int rank : known->ranks) here |= MemberMask::Of(MemberId(job_->LocalRankOf(rank)));
    const bool wired = here.size() < static_cast<int>(known->ranks.size());
    switch (job_->segment().ClaimRegion(id, here, wired, alone, self, &known->region)) {
      case Claim::kDone:
        break;
      case Claim::kDisputed:
        return Internal("another rank of this host has used its key for other ranks than " +
                        RankList(RankSet(known->ranks)) +
                        "; all members name the same ranks, and each process set needs a key of its own");
      case Claim::kNoRoom:
        return NoRoomForCommunicator(job_->segment().max_communicators());
      case Claim::kAborted:
        return Internal(job_->AbortText());
    }
  }
  known->counters = std::make_shared<CommunicatorCounters>();
  std::unique_ptr<Communicator> communicator;
  Status status = Communicator::Open(job_, id, known->region, known->ranks, &communicator);
  try {
    if (status.ok()) {
      known->membership = std::make_shared<Membership>(std::move(communicator), completions_, &memory_,
                                                       stalls_, known->counters, timeline_);
    }
  } catch (const ThreadRefused& refused) {
    status = Internal(refused.what());
  }
  return status;
}

void CommunicatorSet::Add(CommunicatorId id, const Known& known) {
  if (known.membership != nullptr) known.membership->communicator().Begin();
  job_->logger().Log(LogLevel::kDebug,
                     "process set " + std::to_string(id) + " of " + RankList(RankSet(known.ranks)) +
                         (known.membership != nullptr ? " joined" : " made, without this rank"));
  std::lock_guard<std::mutex> lock(mu_);
  known_[id] = known;
}

Status CommunicatorSet::CheckNobodyHasLeft(Membership& meeting) {
  Communicator& communicator = meeting.communicator();
  CommunicatorSegment& segment = communicator.group().segment();
  const MemberMask active(segment.active().load(std::memory_order_seq_cst));
  RankSet gone = communicator.ToRanks((MemberMask::FirstN(communicator.group().size()) - active).bits());
  if (const std::uint64_t left = segment.outside_left().load(std::memory_order_seq_cst); left != 0) {
    gone.Add(RankId(static_cast<int>(left) - 1));
  }
  if (gone.empty()) return {};
  if (communicator.id() == kWorld) {
    return FailedPrecondition("process sets are made and removed by all ranks, but " + RankList(gone) +
                              " left the set of all ranks");
  }
  return FailedPrecondition("process set " + std::to_string(communicator.id()) +
                            " is removed by all its ranks, but " + RankList(gone) + " left it");
}

Status CommunicatorSet::Agree(Membership& meeting, const std::string& label, CommunicatorId id,
                              const Known& known) {
  std::promise<Status> outcome;
  Request request;
  request.operation.kind = CollectiveKind::kCommunicator;
  // The tensor has no elements; the ranks compare the shape, which is part of the manifest.
  request.shape = {0, static_cast<std::int64_t>(id)};
  for (const int rank : known.ranks) request.shape.push_back(rank);
  request.label = std::to_string(id) + label;
  request.done = [&outcome](const Status& status) { outcome.set_value(status); };
  meeting.submission().Submit(std::move(request));
  return outcome.get_future().get();
}

Status CommunicatorSet::Create(std::vector<int> ranks, CommunicatorId* id) {
  std::sort(ranks.begin(), ranks.end());
  std::lock_guard<std::mutex> changing(changing_mu_);
  Membership& world = *Find(kWorld);
  Status status = CheckRanks(ranks, job_->size());
  if (status.ok()) status = CheckNobodyHasLeft(world);
  if (!status.ok()) return status;
  const int capacity = job_->segment().max_communicators();
  {
    // All ranks know the same of these communicators, so this fails on all of them or on none.
    std::lock_guard<std::mutex> lock(mu_);
    if (std::distance(known_.begin(), known_.lower_bound(kFirstOfMembers)) >= capacity) {
      return NoRoomForCommunicator(capacity);
    }
  }
  Known known;
  known.ranks = std::move(ranks);
  status = Join(next_id_, /*alone=*/false, &known);
  if (!status.ok()) {
    status =
        Internal("rank " + std::to_string(job_->rank()) + " cannot join a process set: " + status.message());
    world.failures().FailStep(kNoStep, status.message());  // the others wait in Agree, or will
  } else {
    status = Agree(world, " of " + RankList(RankSet(known.ranks)), next_id_, known);
  }
  if (!status.ok()) {
    Drop(next_id_, &known);
    return status;
  }
  *id = next_id_++;
  Add(*id, known);
  return {};
}

Status CommunicatorSet::CreateAmong(std::vector<int> ranks, std::uint64_t key, CommunicatorId* id) {
  std::sort(ranks.begin(), ranks.end());
  Status status = CheckRanks(ranks, job_->size());
  if (status.ok()) status = CheckKey(key);
  if (!status.ok()) return status;
  if (!std::binary_search(ranks.begin(), ranks.end(), job_->rank())) {
    return InvalidArgument("rank " + std::to_string(job_->rank()) + " is not among " +
                           RankList(RankSet(ranks)) + ", who make this process set alone");
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!keys_.insert(key).second) return KeyWasUsed(key, job_->rank());
  }
  const CommunicatorId number = kFirstOfMembers + static_cast<CommunicatorId>(key);
  Known known;
  known.ranks = std::move(ranks);
  status = Join(number, /*alone=*/true, &known);
  if (!status.ok()) {
    // The others wait where this rank cannot tell them.
    status = Internal("rank " + std::to_string(job_->rank()) + " cannot join the process set of key " +
                      std::to_string(key) + ": " + status.message());
    job_->Abort(status.message());
  } else {
    Add(number, known);
    status = Agree(*known.membership, " of " + RankList(RankSet(known.ranks)), number, known);
  }
  if (!status.ok()) {
    Drop(number, &known);
    return status;
  }
  *id = number;
  return {};
}

Status CommunicatorSet::Remove(CommunicatorId id) {
  if (id == kWorld) return CannotRemoveWorld();
  std::unique_lock<std::mutex> changing(changing_mu_, std::defer_lock);
  if (id < kFirstOfMembers) changing.lock();
  Known known;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = known_.find(id);
    if (found == known_.end()) return NoSuchCommunicator(id);
    if (std::exchange(found->second.ends, true)) {
      return FailedPrecondition("another thread removes process set " + std::to_string(id));
    }
    known = found->second;
  }
  Status status = AgreeOnRemoval(id, known);
  if (!status.ok()) {
    std::lock_guard<std::mutex> lock(mu_);
    known_[id].ends = false;
    return status;
  }
  const bool member = known.membership != nullptr;
  if (member) job_->arena().Quarantine();  // other ranks may still read and write tensors of it
  Drop(id, &known);
  job_->logger().Log(LogLevel::kDebug, "process set " + std::to_string(id) + " removed");
  if (!member) return {};
  // This wait is short: all have agreed, and are about to let go.
  while (job_->segment().IsClaimed(known.region, id)) {
    if (job_->aborted()) return Internal(job_->AbortText());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  job_->arena().Release();
  return {};
}

Status CommunicatorSet::AgreeOnRemoval(CommunicatorId id, const Known& known) {
  Membership& meeting = id < kFirstOfMembers ? *world_ : *known.membership;
  Status status = CheckNobodyHasLeft(meeting);
  if (!status.ok()) return status;
  if (known.membership != nullptr && !known.membership->pending().WaitEmpty(std::chrono::milliseconds(0))) {
    return FailedPrecondition("process set " + std::to_string(id) + " is in use on rank " +
                              std::to_string(job_->rank()) + "; remove it when its collectives are done");
  }
  return Agree(meeting, ", removal", id, known);
}

void CommunicatorSet::Drop(CommunicatorId id, Known* known) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (known_.erase(id) > 0 && known->counters != nullptr) {
      CommunicatorStats last;
      known->counters->Take(/*reset=*/false, &last);
      AddByKind(last.collectives, &gone_);
    }
  }
  if (known->membership != nullptr) {
    known->membership->submission().Refuse(
        FailedPrecondition("process set " + std::to_string(id) + " was removed meanwhile"));
    // A thread may still be in a call that found the membership earlier: a late Cancel, the end of a step.
    while (known->membership.use_count() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
    known->membership.reset();
  }
  if (known->region == 0) return;
  Status status = job_->segment().LetGo(known->region, MemberId(job_->local_rank()));
  if (!status.ok()) job_->Abort("rank " + std::to_string(job_->rank()) + ": " + status.message());
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
