#include "kernels/control/host_order.h"

#include <algorithm>
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

std::string WhereOf(const std::string& key, const std::string& number) {
  const std::string by_name = "name/";
  if (key == "sequence") return "at collective " + number;
  if (key == "out of band") return "at out-of-band collective " + number;
  if (key.compare(0, by_name.size(), by_name) != 0) return "in group execution " + number;
  return "at use " + number + " of '" + key.substr(by_name.size()) + "'";
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
  return "the ranks run different collectives " + WhereOf(key, std::to_string(NumberOf(ticket))) +
         " (counted from 0): rank " + std::to_string(rank) + " has " + DescribeManifest(manifest) +
         "; rank " + std::to_string(other_rank) + " has " + DescribeManifest(other) +
         ". All ranks must run the same collectives in the same order, with the same shapes, types and ops. "
         "Likely causes: one rank ran a collective more (a step more, a metric on one rank only), or the "
         "model or the batch differs between ranks";
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
      out->push_back(message);
      if (--active_[host] > 0) return;
      if (std::all_of(active_.begin(), active_.end(), [](int number) { return number == 0; })) {
        return Return(message.rank, out);
      }
      // Requests that waited for this host alone can be launched.
      for (auto entry = waiting_.begin(); entry != waiting_.end();) {
        const bool ready = AllReady(entry->second);
        if (ready) Launch(entry->second, out);
        if (waiting_.empty()) return;  // that was a failure
        entry = ready ? waiting_.erase(entry) : std::next(entry);
      }
      return;
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

void HostOrder::TakeReady(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out) {
  const Key key{message.key_hash, message.key, message.ticket};
  const auto [found, is_new] = waiting_.try_emplace(key);
  Entry& entry = found->second;
  if (is_new) {
    entry.ready.resize(active_.size());
    entry.data.resize(active_.size());
    entry.manifest = message.manifest;
    entry.launch = message;
    entry.launch.kind = RelayMessage::kLaunch;
    if (const Entry* const other = FindInSamePlace(key)) {
      return Fail(0,
                  DescribeCrossing(entry.launch.parts.front().rank.value(), entry.manifest,
                                   other->launch.parts.front().rank.value(), other->manifest),
                  out);
    }
  } else if (!SameManifest(entry.manifest, message.manifest)) {
    return Fail(0,
                DescribeDisagreement(message.key, message.ticket, entry.launch.parts.front().rank.value(),
                                     entry.manifest, message.parts.front().rank.value(), message.manifest),
                out);
  } else {
    AddNccl(message, &entry.launch);
    entry.launch.parts.insert(entry.launch.parts.end(), message.parts.begin(), message.parts.end());
  }
  entry.ready[host] = true;
  entry.data[host] = message.data;
  if (!AllReady(entry)) return;
  Entry ready = std::move(entry);
  waiting_.erase(found);
  Launch(ready, out);
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

// What a member that has left makes impossible is found here, so that all hosts see the same end.
void HostOrder::Launch(const Entry& entry, std::vector<RelayMessage>* out) {
  const CollectiveInfo& info = InfoOf(entry.manifest.operation.kind);
  const bool needs_all =
      info.Is(kHasSplits) || entry.manifest.operation.kind == CollectiveKind::kCommunicator;
  if (info.Is(kHasRoot) && !HasRank(entry.launch.parts, entry.manifest.operation.root)) {
    return Fail(0, DescribeManifest(entry.manifest) + ": the root has left the process set", out);
  }
  if (needs_all && entry.launch.parts.size() != num_members_) {
    return Fail(0, DescribeManifest(entry.manifest) + ": a rank that it needs has left the process set", out);
  }
  out->push_back(entry.launch);
  out->back().data.clear();
  // There is no result yet if one of the hosts has sent no partial one, since its tensors are on GPUs.
  bool all_have_data = true;
  for (std::size_t host = 0; host < active_.size(); ++host) {
    const std::vector<std::string>& data = entry.data[host];
    if (entry.ready[host] && data.empty()) all_have_data = false;
    out->back().data.insert(out->back().data.end(), data.begin(), data.end());
  }
  if (!all_have_data) out->back().data.clear();
  // NCCL's communicator has all ranks.
  if (out->back().nccl != kNoNccl && entry.launch.parts.size() != num_members_) out->back().nccl = kNotKept;
  std::vector<RelayPart>& parts = out->back().parts;
  std::sort(parts.begin(), parts.end(),
            [](const RelayPart& a, const RelayPart& b) { return a.rank < b.rank; });
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
