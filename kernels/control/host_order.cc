#include "kernels/control/host_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "kernels/common/collective_info.h"
#include "kernels/control/readiness_table.h"
#include "kernels/control/ticket.h"

namespace tf_smddp {
namespace {

std::vector<int> CountEach(const std::vector<std::vector<int>>& members) {
  std::vector<int> counts;
  for (const std::vector<int>& host : members) counts.push_back(static_cast<int>(host.size()));
  return counts;
}

bool HasRank(const std::vector<RelayPart>& parts, RankId rank) {
  return std::any_of(parts.begin(), parts.end(), [rank](const RelayPart& part) { return part.rank == rank; });
}

std::string WhereOf(const std::string& key, const std::string& number) {
  const std::string by_name = "name/";
  if (key == "sequence") return "at collective " + number;
  if (key == "out of band") return "at out-of-band collective " + number;
  if (key.compare(0, by_name.size(), by_name) != 0) return "in group execution " + number;
  return "at use " + number + " of '" + key.substr(by_name.size()) + "'";
}

// The likely cause when `rank` is at another collective, while another rank is in a step, at a gradient.
std::string DescribeNotInStep(int rank) {
  const std::string name = "rank " + std::to_string(rank);
  return "One is a gradient, so that rank is in a step. Likely causes: " + name +
         " had fewer batches (give all ranks the same number, with tf_smddp.shard and "
         "batch(drop_remainder=True), or use join, in fit() tf_smddp.keras.callbacks.Join()), or only " +
         name + " runs this collective (a metric or a callback on one rank only)";
}

// The text of the error when two hosts wait for each other.
std::string DescribeCrossing(int rank, const Manifest& manifest, int other_rank, const Manifest& other) {
  return "too many collectives without an order are under way at once on several hosts: rank " +
         std::to_string(rank) + " waits with " + DescribeManifest(manifest) + ", rank " +
         std::to_string(other_rank) + " with " + DescribeManifest(other) +
         ", and each has no room for the other's. Reduce tensors in groups (grouped_allreduce, "
         "DistributedGradientTape), or in functions of their own";
}

}  // namespace

std::string DescribeDisagreement(const std::string& key, std::uint64_t ticket, int rank,
                                 const Manifest& manifest, int other_rank, const Manifest& other) {
  const bool is_gradient = manifest.meaning.gradient > 0;
  const bool other_is_gradient = other.meaning.gradient > 0;
  return "the ranks run different collectives " + WhereOf(key, std::to_string(NumberOf(ticket))) +
         " (counted from 0): rank " + std::to_string(rank) + " has " + DescribeManifest(manifest) +
         "; rank " + std::to_string(other_rank) + " has " + DescribeManifest(other) + ". " +
         (is_gradient == other_is_gradient ? DescribeCause(manifest, other)
                                           : DescribeNotInStep(is_gradient ? other_rank : rank));
}

HostOrder::HostOrder(const std::vector<std::vector<int>>& members)
    : members_(CountEach(members)),
      num_members_(std::accumulate(members_.begin(), members_.end(), std::size_t{0})),
      active_(members_) {}

void HostOrder::Take(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out) {
  switch (message.kind) {
    case RelayMessage::kReady:
      if (message.incarnation == incarnation_) TakeReady(host, message, out);
      return;
    case RelayMessage::kFailed:
      if (message.incarnation == incarnation_) Fail(message.origin, message.text, out);
      return;
    case RelayMessage::kLeft:
      if (!has_promised() && !withdrawing_) return TakeLeft(host, message, out);
      left_.emplace_back(host, message);
      return Withdraw(out);
    case RelayMessage::kWithdrawn:
      return TakeWithdrawn(out);
    case RelayMessage::kShutDown:
      out->push_back(message);
      return;
    case RelayMessage::kPromise:
    case RelayMessage::kWithdraw:
    case RelayMessage::kLaunch:
    case RelayMessage::kSeal:
    case RelayMessage::kFail:
    case RelayMessage::kTurn:
    case RelayMessage::kAbort:
      return;  // not for the head of this communicator
  }
}

void HostOrder::TakeLeft(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out) {
  out->push_back(message);
  if (--active_[host] > 0) return;
  if (std::all_of(active_.begin(), active_.end(), [](int number) { return number == 0; })) {
    return Return(message.rank, out);
  }
  // Requests that waited for this host alone can be launched.
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    const bool ready = AllReady(entry->second);
    if (ready) Launch(std::move(entry->second), out);
    if (waiting_.empty()) return;  // that was a failure
    entry = ready ? waiting_.erase(entry) : std::next(entry);
  }
}

void HostOrder::TakeReady(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out) {
  const Key key{message.key_hash, message.key, message.ticket};
  const auto [found, is_new] = waiting_.try_emplace(key);
  Entry& entry = found->second;
  if (is_new) {
    entry.ready.resize(active_.size());
    entry.data.resize(active_.size());
    entry.launch = message;
    entry.launch.kind = RelayMessage::kLaunch;
    if (const Entry* const other = FindInSamePlace(key)) {
      return Fail(0,
                  DescribeCrossing(entry.launch.parts.front().rank.value(), entry.launch.manifest,
                                   other->launch.parts.front().rank.value(), other->launch.manifest),
                  out);
    }
  } else if (!SameManifest(entry.launch.manifest, message.manifest)) {
    return Fail(
        0,
        DescribeDisagreement(message.key, message.ticket, entry.launch.parts.front().rank.value(),
                             entry.launch.manifest, message.parts.front().rank.value(), message.manifest),
        out);
  } else {
    AddReport(message, &entry.launch);
  }
  entry.ready[host] = true;
  entry.data[host] = message.data;
  if (!AllReady(entry)) {
    if (LastAwaited(entry)) AddToMayBePromised(key);
    return;
  }
  if (!has_promised()) {
    Entry ready = std::move(entry);
    waiting_.erase(found);
    return Launch(std::move(ready), out);
  }
  if (!entry.promised) behind_.push_back(key);
  LaunchInOrder(out);
  if (waiting_.count(key) != 0) Withdraw(out);
}

void HostOrder::AddToMayBePromised(const Key& key) {
  while (!may_be_promised_.empty() && waiting_.count(may_be_promised_.front()) == 0) {
    may_be_promised_.pop_front();
  }
  may_be_promised_.push_back(key);
}

// Launches what was promised as far as it has been reported, and then what is ready behind it. Where a rank
// has left, the host has kept no promise, so this launches nothing before it is withdrawn. A launch that
// fails empties both lists.
void HostOrder::LaunchInOrder(std::vector<RelayMessage>* out) {
  for (std::deque<Key>* const keys : {&promised_, &behind_}) {
    while (!keys->empty()) {
      const auto found = waiting_.find(keys->front());
      if (!AllReady(found->second)) return;
      if (found->second.promised && !HasAllRanks(found->second)) return;
      Entry entry = std::move(found->second);
      waiting_.erase(found);
      keys->pop_front();
      Launch(std::move(entry), out);
    }
  }
}

void HostOrder::Promise(std::vector<RelayMessage>* out) {
  if (has_promised() || withdrawing_ || active_ != members_) return;
  for (const Key& key : std::exchange(may_be_promised_, {})) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) continue;
    Entry& entry = found->second;
    const std::optional<std::size_t> last = LastAwaited(entry);
    if (!last) continue;
    if (has_promised() && *last != promised_to_) {
      may_be_promised_.push_back(key);
      continue;
    }
    promised_to_ = *last;
    promised_.push_back(key);
    entry.promised = true;
    entry.launch.seals = true;
    out->push_back(entry.launch);
    RelayMessage& promise = out->back();
    promise.kind = RelayMessage::kPromise;
    promise.data.clear();
    for (const std::vector<std::string>& data : entry.data) {
      promise.data.insert(promise.data.end(), data.begin(), data.end());
    }
  }
}

// Returns the host that alone has not reported a request that can be promised: it is a batch by itself, or no
// other request is under way; and its tensors do not go through NCCL, whatever that host reports.
std::optional<std::size_t> HostOrder::LastAwaited(const Entry& entry) const {
  const bool alone = entry.launch.seals || waiting_.size() == 1;
  if (!entry.ready.front() || !alone || entry.launch.nccl > kNoNccl) return std::nullopt;
  const auto last = std::find(entry.ready.begin(), entry.ready.end(), false);
  if (last == entry.ready.end() || std::find(last + 1, entry.ready.end(), false) != entry.ready.end()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(last - entry.ready.begin());
}

void HostOrder::Withdraw(std::vector<RelayMessage>* out) {
  if (std::exchange(withdrawing_, true)) return;
  out->emplace_back().kind = RelayMessage::kWithdraw;
}

void HostOrder::TakeWithdrawn(std::vector<RelayMessage>* out) {
  withdrawing_ = false;
  for (const Key& key : std::exchange(promised_, {})) {
    Entry& entry = waiting_.at(key);
    entry.promised = false;
    (AllReady(entry) ? behind_ : may_be_promised_).push_back(key);
  }
  const std::uint64_t incarnation = incarnation_;
  LaunchInOrder(out);
  const std::optional<Failure> failure = std::exchange(failure_, std::nullopt);
  if (failure && incarnation == incarnation_) Fail(failure->origin, failure->text, out);
  for (const auto& [host, message] : std::exchange(left_, {})) TakeLeft(host, message, out);
}

// Returns a request that waits for this one's host in the place where this one waits for the other's, if
// there is one: neither can be launched any more (Note [Places between hosts] in kernels/engine/pending.h).
const HostOrder::Entry* HostOrder::FindInSamePlace(const Key& key) const {
  const auto& [hash, text, ticket] = key;
  for (auto each = waiting_.lower_bound(Key{hash, text, 0}); each != waiting_.end(); ++each) {
    const auto& [other_hash, other_text, other_ticket] = each->first;
    if (other_hash != hash || other_text != text) return nullptr;
    if (other_ticket == ticket || AllReady(each->second) ||
        other_ticket % Place::kMostGenerations != ticket % Place::kMostGenerations) {
      continue;
    }
    for (std::size_t host = 0; host < active_.size(); ++host) {
      if (each->second.ready[host] && active_[host] > 0) return &each->second;
    }
  }
  return nullptr;
}

// A host that has no members any more is not waited for.
bool HostOrder::AllReady(const Entry& entry) const {
  for (std::size_t host = 0; host < active_.size(); ++host) {
    if (!entry.ready[host] && active_[host] > 0) return false;
  }
  return true;
}

bool HostOrder::HasAllRanks(const Entry& entry) const { return entry.launch.parts.size() == num_members_; }

// What a member that has left makes impossible is found here, so that all hosts see the same end.
void HostOrder::Launch(Entry entry, std::vector<RelayMessage>* out) {
  const Manifest& manifest = entry.launch.manifest;
  const CollectiveInfo& info = InfoOf(manifest.operation.kind);
  const bool all_take_part = HasAllRanks(entry);
  const bool needs_all = info.Is(kHasSplits) || manifest.operation.kind == CollectiveKind::kCommunicator;
  if (info.Is(kHasRoot) && !HasRank(entry.launch.parts, manifest.operation.root)) {
    return Fail(0, DescribeManifest(manifest) + ": the root has left the process set", out);
  }
  if (needs_all && !all_take_part) {
    return Fail(0, DescribeManifest(manifest) + ": a rank that it needs has left the process set", out);
  }
  RelayMessage launch = std::move(entry.launch);
  launch.promised = entry.promised;
  launch.data.clear();
  // There is no result yet if one of the hosts has sent no partial one: its tensors are on GPUs, or another
  // request was under way there. A transfer then makes the same bits, unless a rank has left: then it adds
  // the inputs in the order of the ranks. So nothing else may do that then.
  bool all_have_data = all_take_part || launch.manifest.operation.kind != CollectiveKind::kAllreduce;
  for (std::size_t host = 0; host < active_.size(); ++host) {
    std::vector<std::string>& data = entry.data[host];
    if (entry.ready[host] && data.empty()) all_have_data = false;
    std::move(data.begin(), data.end(), std::back_inserter(launch.data));
  }
  if (!all_have_data) launch.data.clear();
  // NCCL's communicator has all ranks.
  if (launch.nccl != kNoNccl && !all_take_part) launch.nccl = kNotKept;
  SortParts(&launch.parts);
  out->push_back(std::move(launch));
}

void HostOrder::Fail(std::uint64_t origin, const std::string& text, std::vector<RelayMessage>* out) {
  if (has_promised() || withdrawing_) {
    if (!failure_) failure_ = Failure{origin, text};
    return Withdraw(out);
  }
  RelayMessage fail;
  fail.kind = RelayMessage::kFail;
  fail.incarnation = incarnation_++;
  fail.origin = origin;
  fail.text = text;
  waiting_.clear();
  behind_.clear();
  may_be_promised_.clear();
  out->push_back(std::move(fail));
}

// All members of all hosts have left.
void HostOrder::Return(RankId last, std::vector<RelayMessage>* out) {
  Fail(0, "all ranks have left", out);
  out->back().rank = last;
  active_ = members_;
}

}  // namespace tf_smddp
