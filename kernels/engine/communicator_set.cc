#include "kernels/engine/communicator_set.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <utility>

#include "kernels/common/thread.h"

namespace tf_smddp {
namespace {

std::string List(const std::vector<int>& ranks) {
  std::uint64_t mask = 0;
  for (const int rank : ranks) mask |= std::uint64_t{1} << rank;
  return RankList(mask);
}

Status CheckRanks(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) return InvalidArgument("a process set needs at least one rank");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size) {
      return InvalidArgument("a process set with rank " + std::to_string(ranks[i]) +
                             ", but the ranks are 0 to " + std::to_string(size - 1));
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      return InvalidArgument("a process set that names rank " + std::to_string(ranks[i]) + " twice");
    }
  }
  return {};
}

}  // namespace

CommunicatorSet::CommunicatorSet(const Config& config, Job* job, CompletionThread* completions,
                                 StallWatch* stalls)
    : config_(config), job_(job), completions_(completions), stalls_(stalls), memory_(config.rank) {}

Status CommunicatorSet::OpenWorld() {
  std::vector<int> ranks(static_cast<std::size_t>(config_.local_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Open(kWorld, ranks);
}

Status CommunicatorSet::Open(CommunicatorId id, const std::vector<int>& ranks) {
  Known known{ranks, nullptr, nullptr};
  if (std::binary_search(ranks.begin(), ranks.end(), config_.rank)) {
    known.counters = std::make_shared<CommunicatorCounters>();
  }
  if (job_ != nullptr && known.counters != nullptr) {
    std::unique_ptr<Communicator> communicator;
    Status status = Communicator::Open(job_, id, ranks, &communicator);
    if (!status.ok()) return status;
    try {
      known.membership = std::make_shared<Membership>(std::move(communicator), completions_, &memory_,
                                                      stalls_, known.counters);
    } catch (const ThreadRefused& refused) {
      return Internal(refused.what());
    }
  }
  if (job_ != nullptr) {
    job_->logger().Log(LogLevel::kDebug,
                       "process set " + std::to_string(id) + " of " + List(ranks) +
                           (known.counters != nullptr ? " joined" : " made, without this rank"));
  }
  std::lock_guard<std::mutex> lock(mu_);
  known_[id] = std::move(known);
  return {};
}

Status CommunicatorSet::Agree(const std::string& label, CommunicatorId id, const std::vector<int>& ranks) {
  if (job_ == nullptr) return {};
  std::promise<Status> outcome;
  Request request;
  request.kind = CollectiveKind::kCommunicator;
  // No elements; the manifest compares all of it.
  request.shape = {0, static_cast<std::int64_t>(id)};
  for (const int rank : ranks) request.shape.push_back(rank);
  request.label = label;
  request.done = [&outcome](const Status& status) { outcome.set_value(status); };
  Find(kWorld)->dispatcher().Submit(std::move(request));
  return outcome.get_future().get();
}

Status CommunicatorSet::Create(std::vector<int> ranks, CommunicatorId* id) {
  std::sort(ranks.begin(), ranks.end());
  Status status = CheckRanks(ranks, config_.local_size);
  if (!status.ok()) return status;
  const int capacity = job_ == nullptr ? kMaxCommunicators : job_->segment().max_communicators();
  CommunicatorId free = kWorld;
  {
    std::lock_guard<std::mutex> lock(mu_);
    while (known_.count(free) != 0) ++free;
  }
  // All ranks know of the same communicators, so this ends alike on all of them.
  if (free >= static_cast<CommunicatorId>(capacity)) {
    return Internal(
        "no room for another process set: the job has " + std::to_string(capacity) +
        ", the world's included; remove one, or, if the file size is limited, raise that (ulimit -f)");
  }
  status = Agree("of " + List(ranks), free, ranks);
  if (!status.ok()) return status;
  status = Open(free, ranks);
  if (!status.ok()) {
    // The other members have it by now.
    job_->Abort("rank " + std::to_string(config_.rank) + " cannot join a process set: " + status.message());
    return status;
  }
  *id = free;
  return {};
}

Status CommunicatorSet::Remove(CommunicatorId id) {
  const std::vector<int> ranks = RanksOf(id);
  if (id == kWorld) return InvalidArgument("the process set of all ranks cannot be removed");
  if (ranks.empty()) return InvalidArgument("there is no process set " + std::to_string(id));
  std::shared_ptr<Membership> membership = Find(id);
  if (membership != nullptr && !membership->dispatcher().pending().WaitEmpty(std::chrono::milliseconds(0))) {
    return FailedPrecondition("process set " + std::to_string(id) + " is in use on rank " +
                              std::to_string(config_.rank) + "; remove it when its collectives are done");
  }
  Status status = Agree("removal of " + std::to_string(id), id, ranks);
  if (!status.ok()) return status;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (known_[id].counters != nullptr) {
      CommunicatorStats last;
      known_[id].counters->Take(/*reset=*/false, &last);
      AddByKind(last.collectives, &gone_);
    }
    known_.erase(id);
  }
  // Another thread may be in one of its functions (Find, All), for a moment: it must not be the one that ends
  // it.
  while (membership.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  membership.reset();
  if (job_ != nullptr) job_->logger().Log(LogLevel::kDebug, "process set " + std::to_string(id) + " removed");
  // When all ranks have let go of it, and before any can make it anew.
  status = Agree("removed " + std::to_string(id), id, ranks);
  if (status.ok() && job_ != nullptr && config_.rank == 0)
    status = job_->segment().ClearCommunicator(static_cast<int>(id));
  return status;
}

std::vector<int> CommunicatorSet::RanksOf(CommunicatorId id) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = known_.find(id);
  return found == known_.end() ? std::vector<int>() : found->second.ranks;
}

std::shared_ptr<Membership> CommunicatorSet::Find(CommunicatorId id) {
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

std::vector<StallWatch::Waiting> CommunicatorSet::CollectWaiting(Clock::time_point before) {
  std::vector<StallWatch::Waiting> waiting;
  {
    // Held meanwhile, so that none is removed: a membership must not be kept alive from here.
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [id, known] : known_) {
      if (known.membership != nullptr) known.membership->dispatcher().CollectWaiting(before, &waiting);
    }
  }
  std::stable_sort(
      waiting.begin(), waiting.end(),
      [](const StallWatch::Waiting& a, const StallWatch::Waiting& b) { return a.submitted < b.submitted; });
  return waiting;
}

Status CommunicatorSet::WhyNot(CommunicatorId id) {
  const std::vector<int> ranks = RanksOf(id);
  if (ranks.empty()) return InvalidArgument("there is no process set " + std::to_string(id));
  return InvalidArgument("rank " + std::to_string(config_.rank) + " is not in process set " +
                         std::to_string(id) + ", which has " + List(ranks));
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
