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

// Adds to what the hosts before have said of NCCL what another one says.
void AddNccl(const RelayMessage& report, RelayMessage* launch) {
  if (launch->nccl == kNoNccl || launch->nccl == report.nccl) return;
  const bool versions_differ = launch->nccl != kNotKept && report.nccl != kNotKept;
  if (report.nccl == kNoNccl) {
    launch->rank = report.rank;
  } else if (versions_differ) {
    launch->rank = report.parts.front().rank;
  }
  launch->nccl = report.nccl == kNoNccl || versions_differ ? kNoNccl : kNotKept;
}

// Adds to `launch`, which has what other hosts have reported of a request, what `report` says of it.
void AddReport(const RelayMessage& report, RelayMessage* launch) {
  AddNccl(report, launch);
  launch->last = report.last;
  launch->parts.insert(launch->parts.end(), report.parts.begin(), report.parts.end());
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
      return TakeLeft(host, message, out);
    case RelayMessage::kShutDown:
      out->push_back(message);
      return;
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
  if (!AllReady(entry)) return;
  Entry ready = std::move(entry);
  waiting_.erase(found);
  Launch(std::move(ready), out);
}

// Returns a request that waits for this one's host in the place where this one waits for the other's, if
// there is one: neither can be launched any more (Note [Places between hosts] in kernels/engine/pending.h).
const HostOrder::Entry* HostOrder::FindInSamePlace(const Key& key) const {
  const auto& [hash, text, ticket] = key;
  for (auto each = waiting_.lower_bound(Key{hash, text, 0}); each != waiting_.end(); ++each) {
    const auto& [other_hash, other_text, other_ticket] = each->first;
    if (other_hash != hash || other_text != text) return nullptr;
    if (other_ticket == ticket ||
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

// A request that needs a member that has left fails here, so that all hosts see the same end.
void HostOrder::Launch(Entry entry, std::vector<RelayMessage>* out) {
  const Manifest& manifest = entry.launch.manifest;
  const CollectiveInfo& info = InfoOf(manifest.operation.kind);
  const bool all_take_part = entry.launch.parts.size() == num_members_;
  const bool needs_all = info.Is(kHasSplits) || manifest.operation.kind == CollectiveKind::kCommunicator;
  if (info.Is(kHasRoot) && !HasRank(entry.launch.parts, manifest.operation.root)) {
    return Fail(0, DescribeManifest(manifest) + ": the root has left the process set", out);
  }
  if (needs_all && !all_take_part) {
    return Fail(0, DescribeManifest(manifest) + ": a rank that it needs has left the process set", out);
  }
  RelayMessage launch = std::move(entry.launch);
  launch.data.clear();
  // There is no result yet if one of the hosts has sent no partial one, since its tensors are on GPUs. A
  // transfer then makes the same bits, unless a rank has left: then it adds the inputs in the order of the
  // ranks. So nothing else may do that then.
  bool all_have_data = all_take_part || launch.manifest.operation.kind != CollectiveKind::kAllreduce;
  for (std::size_t host = 0; host < active_.size(); ++host) {
    std::vector<std::string>& data = entry.data[host];
    if (entry.ready[host] && data.empty()) all_have_data = false;
    std::move(data.begin(), data.end(), std::back_inserter(launch.data));
  }
  if (!all_have_data) launch.data.clear();
  // NCCL's communicator has all ranks.
  if (launch.nccl != kNoNccl && !all_take_part) launch.nccl = kNotKept;
  std::sort(launch.parts.begin(), launch.parts.end(),
            [](const RelayPart& a, const RelayPart& b) { return a.rank < b.rank; });
  out->push_back(std::move(launch));
}

void HostOrder::Fail(std::uint64_t origin, const std::string& text, std::vector<RelayMessage>* out) {
  RelayMessage fail;
  fail.kind = RelayMessage::kFail;
  fail.incarnation = incarnation_++;
  fail.origin = origin;
  fail.text = text;
  waiting_.clear();
  out->push_back(std::move(fail));
}

// All members of all hosts have left.
void HostOrder::Return(RankId last, std::vector<RelayMessage>* out) {
  Fail(0, "all ranks have left", out);
  out->back().rank = last;
  active_ = members_;
}

}  // namespace tf_smddp
