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

const char kGroupKey[] = "group/";

bool StartsWith(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

std::size_t CountAll(const std::vector<std::vector<int>>& members) {
  return std::accumulate(members.begin(), members.end(), std::size_t{0},
                         [](std::size_t sum, const std::vector<int>& host) { return sum + host.size(); });
}

std::vector<std::size_t> CountEach(const std::vector<std::vector<int>>& members) {
  std::vector<std::size_t> counts;
  for (const std::vector<int>& host : members) counts.push_back(host.size());
  return counts;
}

bool HasRank(const std::vector<RelayPart>& parts, RankId rank) {
  return std::any_of(parts.begin(), parts.end(), [rank](const RelayPart& part) { return part.rank == rank; });
}

// How many tickets of a key have places of their own.
std::uint64_t PlacesOf(const Description& description) {
  return StartsWith(description.key, kGroupKey) ? Place::NumOfGroups(description.manifest.param_index)
                                                : Place::kMostGenerations;
}

std::string WhereOf(const std::string& key, const std::string& number) {
  const std::string by_name = "name/";
  if (key == "sequence") return "at collective " + number;
  if (key == "out of band") return "at out-of-band collective " + number;
  if (!StartsWith(key, by_name)) return "in group execution " + number;
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

// Adds to what the hosts before have said of NCCL what another one says, of which `first` takes part.
void AddNccl(const RelayMessage& report, RankId first, RelayMessage* launch) {
  if (launch->nccl == kNoNccl || launch->nccl == report.nccl) return;
  const bool versions_differ = launch->nccl != kNotKept && report.nccl != kNotKept;
  if (report.nccl == kNoNccl) {
    launch->rank = report.rank;
  } else if (versions_differ) {
    launch->rank = first;
  }
  launch->nccl = report.nccl == kNoNccl || versions_differ ? kNoNccl : kNotKept;
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
    : members_(members),
      num_members_(CountAll(members)),
      active_(CountEach(members)),
      active_hosts_(members.size()) {}

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
    case RelayMessage::kWorks:
    case RelayMessage::kAbort:
      return;  // not for the head of this communicator
  }
}

void HostOrder::TakeLeft(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out) {
  out->push_back(message);
  if (--active_[host] > 0) return;
  if (--active_hosts_ == 0) return Return(message.rank, out);
  // Requests that waited for this host alone can be launched.
  const std::uint64_t incarnation = incarnation_;
  for (std::vector<Entry>& entries : waiting_) {
    for (std::size_t i = 0; i < entries.size();) {
      if (entries[i].ready[host] || --entries[i].missing > 0) {
        ++i;
        continue;
      }
      Entry ready = std::move(entries[i]);
      entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
      Launch(std::move(ready), out);
      if (incarnation_ != incarnation) return;  // that was a failure
    }
  }
}

void HostOrder::TakeReady(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out) {
  const Description& description = *message.description;
  if (description.key_number >= waiting_.size()) waiting_.resize(description.key_number + 1);
  std::vector<Entry>& entries = waiting_[description.key_number];
  auto found = entries.begin();
  while (found != entries.end() && found->launch.ticket != message.ticket) ++found;
  if (found == entries.end()) {
    if (const Entry* const other = FindInSamePlace(entries, message)) {
      return Fail(0,
                  DescribeCrossing(FirstOf(host, message).value(), description.manifest, other->first.value(),
                                   other->launch.description->manifest),
                  out);
    }
    found = entries.insert(found, NewEntry(host, message));
  }
  const Description& first = *found->launch.description;
  if (&first != &description && !SameManifest(first.manifest, description.manifest)) {
    return Fail(0,
                DescribeDisagreement(description.key, message.ticket, found->first.value(), first.manifest,
                                     FirstOf(host, message).value(), description.manifest),
                out);
  }
  AddReport(host, message, &*found);
  if (found->missing > 0) return;
  Entry ready = std::move(*found);
  entries.erase(found);
  Launch(std::move(ready), out);
}

// The first rank of the host that takes part.
RankId HostOrder::FirstOf(std::size_t host, const RelayMessage& report) const {
  return report.parts.empty() ? RankId(members_[host].front()) : report.parts.front().rank;
}

// Without what the report says.
HostOrder::Entry HostOrder::NewEntry(std::size_t host, const RelayMessage& report) const {
  Entry entry;
  entry.launch = report;
  entry.launch.kind = RelayMessage::kLaunch;
  entry.launch.parts.clear();
  entry.launch.data.clear();
  entry.first = FirstOf(host, report);
  entry.ready.resize(members_.size());
  entry.missing = active_hosts_;
  return entry;
}

void HostOrder::AddReport(std::size_t host, const RelayMessage& report, Entry* entry) const {
  if (entry->ready[host]) return;
  entry->ready[host] = true;
  if (active_[host] > 0) --entry->missing;
  entry->launch.last = FirstOf(host, report);
  AddNccl(report, entry->launch.last, &entry->launch);
  entry->ranks += report.parts.empty() ? members_[host].size() : report.parts.size();
  if (!report.parts.empty() || !report.data.empty()) {
    entry->brought.push_back({host, report.parts, report.data});
  }
}

// Returns a request that waits for this one's host in the place where this one waits for the other's, if
// there is one: neither can be launched any more (Note [Places between hosts] in
// kernels/engine/core/pending.h).
const HostOrder::Entry* HostOrder::FindInSamePlace(const std::vector<Entry>& entries,
                                                   const RelayMessage& message) const {
  const std::uint64_t places = PlacesOf(*message.description);
  for (const Entry& entry : entries) {
    if (NumberOf(entry.launch.ticket) % places != NumberOf(message.ticket) % places) continue;
    for (std::size_t host = 0; host < active_.size(); ++host) {
      if (entry.ready[host] && active_[host] > 0) return &entry;
    }
  }
  return nullptr;
}

// The parts of a launch, by rank; none where no report has any, since all take part.
std::vector<RelayPart> HostOrder::PartsOf(const Entry& entry) const {
  std::vector<RelayPart> parts;
  const bool has_parts = std::any_of(entry.brought.begin(), entry.brought.end(),
                                     [](const Brought& each) { return !each.parts.empty(); });
  if (!has_parts && entry.ranks == num_members_) return parts;
  std::vector<bool> all_of = entry.ready;  // by host
  for (const Brought& each : entry.brought) {
    if (each.parts.empty()) continue;
    all_of[each.host] = false;
    parts.insert(parts.end(), each.parts.begin(), each.parts.end());
  }
  for (std::size_t host = 0; host < members_.size(); ++host) {
    if (!all_of[host]) continue;
    for (const int rank : members_[host]) parts.push_back({RankId(rank), 0, {}});
  }
  std::sort(parts.begin(), parts.end(),
            [](const RelayPart& a, const RelayPart& b) { return a.rank < b.rank; });
  return parts;
}

// A request that needs a member that has left fails here, so that all hosts see the same end.
void HostOrder::Launch(Entry entry, std::vector<RelayMessage>* out) {
  const Manifest& manifest = entry.launch.description->manifest;
  const CollectiveInfo& info = InfoOf(manifest.operation.kind);
  const bool all_take_part = entry.ranks == num_members_;
  const bool needs_all = info.Is(kHasSplits) || manifest.operation.kind == CollectiveKind::kCommunicator;
  RelayMessage launch = std::move(entry.launch);
  launch.parts = PartsOf(entry);
  if (manifest.operation.root.valid() && !all_take_part && !HasRank(launch.parts, manifest.operation.root)) {
    return Fail(0, DescribeManifest(manifest) + ": the root has left the process set", out);
  }
  if (needs_all && !all_take_part) {
    return Fail(0, DescribeManifest(manifest) + ": a rank that it needs has left the process set", out);
  }
  // There is no result yet if one of the hosts has sent no partial one, since its tensors are on GPUs. A
  // transfer then makes the same bits, unless a rank has left: then it adds the inputs in the order of the
  // ranks. So nothing else may do that then.
  if (all_take_part || manifest.operation.kind != CollectiveKind::kAllreduce) {
    std::sort(entry.brought.begin(), entry.brought.end(),
              [](const Brought& a, const Brought& b) { return a.host < b.host; });
    std::ptrdiff_t missing = std::count(entry.ready.begin(), entry.ready.end(), true);
    for (Brought& each : entry.brought) {
      missing -= each.data.empty() ? 0 : 1;
      std::move(each.data.begin(), each.data.end(), std::back_inserter(launch.data));
    }
    if (missing > 0) launch.data.clear();
  }
  // NCCL's communicator has all ranks.
  if (launch.nccl != kNoNccl && !all_take_part) launch.nccl = kNotKept;
  out->push_back(std::move(launch));
}

void HostOrder::Fail(std::uint64_t origin, const std::string& text, std::vector<RelayMessage>* out) {
  RelayMessage fail;
  fail.kind = RelayMessage::kFail;
  fail.incarnation = incarnation_++;
  fail.origin = origin;
  fail.text = text;
  for (std::vector<Entry>& entries : waiting_) entries.clear();
  out->push_back(std::move(fail));
}

// All members of all hosts have left.
void HostOrder::Return(RankId last, std::vector<RelayMessage>* out) {
  Fail(0, "all ranks have left", out);
  out->back().rank = last;
  active_ = CountEach(members_);
  active_hosts_ = members_.size();
}

}  // namespace tf_smddp
