#include "kernels/engine/core/resolve.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/engine/hosts/outside_parts.h"

namespace tf_smddp {
namespace {

// No tensor is that large: a length above it comes from damaged memory.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 46;

class Resolver {
 public:
  Resolver(Communicator* communicator, const PendingRequest& pending, ResolvedRequest* resolved)
      : communicator_(communicator), group_(&communicator->group()), pending_(pending), resolved_(resolved) {}

  Status Run() {
    const MemberMask arrived(group_->table().Participants(pending_.slot, pending_.ticket));
    const MemberId self(group_->index());
    const MemberId outside = group_->segment().outside();
    if (!(MemberMask::FirstN(group_->size()).With(outside)).ContainsAll(arrived) || !arrived.Contains(self)) {
      return Damaged("participants");
    }
    resolved_->participants = arrived.Without(outside);
    parts_.reserve(static_cast<std::size_t>(arrived.size()));
    for (const MemberId member : resolved_->participants) {
      parts_.push_back({RankId(group_->rank_of(member.value())), member,
                        group_->table().CellOf(pending_.place(), member.value())});
    }
    Status status = arrived.Contains(outside) ? AddOutside(outside) : Status();
    for (const Part& part : parts_) {
      if (part.member == self) resolved_->self = ParticipantId(static_cast<int>(resolved_->members.size()));
      resolved_->members.push_back(part.member);
    }
    if (status.ok()) status = Describe();
    if (status.ok()) status = Locate();
    return status;
  }

 private:
  // A participant. One of another host is no member of the group; of its cell only the rows count.
  struct Part {
    RankId rank;
    MemberId member;
    Cell cell;
    std::uint64_t rows_for_self = 0;  // of another host, where there are splits
  };

  Status Damaged(const std::string& what) const {
    return Corrupt("shared memory is corrupt: invalid " + what + " for " +
                   DescribeManifest(pending_.manifest));
  }

  // Participants stand in the order of their ranks.
  Status AddOutside(MemberId outside) {
    std::vector<RelayPart> others;
    const Cell cell = group_->table().CellOf(pending_.place(), outside.value());
    if (!ReadOutsideParts(communicator_, cell, &others)) return Damaged("parts of other hosts");
    all_hosts_keep_ = cell.input_offset == kOnDevice;
    const bool has_splits = InfoOf(pending_.request.operation.kind).Is(kHasSplits);
    for (const RelayPart& other : others) {
      if (has_splits && other.splits.size() != static_cast<std::size_t>(group_->size())) {
        return Damaged("splits");
      }
      parts_.push_back({other.rank,
                        MemberId(),
                        {kNotInArena, kNotInArena, other.rows, kNotInArena},
                        has_splits ? other.splits[static_cast<std::size_t>(group_->index())] : 0});
    }
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; });
    for (const Part& part : parts_) resolved_->ranks.push_back(part.rank);
    return {};
  }

  Status Describe() {
    const Request& request = pending_.request;
    Call& call = resolved_->call;
    resolved_->collective = &FindCollective(request.operation.kind);
    call = CallOf(request);
    call.num_ranks = static_cast<int>(parts_.size());
    const CollectiveInfo& info = InfoOf(request.operation.kind);
    const RankId root = request.operation.root;
    if (root.valid()) {
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].rank == root) call.root = ParticipantId(static_cast<int>(i));
      }
      if (!call.root.valid()) {
        return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                  ": the root has left the process set");
      }
    }
    if (request.operation.kind == CollectiveKind::kCommunicator && call.num_ranks < communicator_->size()) {
      return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                ": a rank that it needs has left the process set");
    }
    if (info.Is(kRowsDiffer) && !info.Is(kHasSplits)) {
      for (const Part& part : parts_) call.rows.push_back(part.cell.rows);
    }
    if (info.Is(kHasSplits)) {
      Status status = ReadSplits();
      if (!status.ok()) return status;
    }
    return CheckRows();
  }

  Status ReadSplits() {
    const auto size = static_cast<std::size_t>(communicator_->size());
    if (parts_.size() != size) {
      return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                ": a rank that it sends to has left the process set");
    }
    for (const Part& part : parts_) {
      std::vector<std::uint64_t>& rows = resolved_->call.splits.emplace_back(1, part.rows_for_self);
      if (!part.member.valid()) continue;
      const std::uint64_t offset = part.cell.splits_offset;
      const std::byte* splits =
          group_->view(part.member.value()).Resolve(offset, size * sizeof(std::uint64_t));
      if (splits == nullptr || offset % alignof(std::uint64_t) != 0) return Damaged("splits");
      rows.resize(size);
      std::memcpy(rows.data(), splits, size * sizeof(std::uint64_t));
    }
    return {};
  }

  Status CheckRows() const {
    const std::uint64_t row_bytes = resolved_->call.row_count * DTypeBytes(resolved_->call.operation.dtype);
    std::uint64_t total = 0;
    const auto add = [&](const std::vector<std::uint64_t>& numbers) {
      for (const std::uint64_t rows : numbers) {
        if (rows > kMaxBytes || (row_bytes > 0 && rows > kMaxBytes / row_bytes)) return false;
        total += rows * row_bytes;
        if (total > kMaxBytes) return false;
      }
      return true;
    };
    const std::vector<std::vector<std::uint64_t>>& splits = resolved_->call.splits;
    const bool fits = add(resolved_->call.rows) && std::all_of(splits.begin(), splits.end(), add);
    return fits ? Status() : Damaged("number of rows");
  }

  // Tensors stay on devices if all members take part, no member's tensor is on the host, and the devices can
  // be used together. Requests that the members have refused meanwhile go through the host. Between hosts the
  // head has decided that.
  bool StayOnDevices() const {
    const DeviceKeeper* const keeper = communicator_->keeper();
    if (keeper == nullptr || keeper->Refused()) return false;
    if (communicator_->wired()) return all_hosts_keep_;
    const auto kept = [](const Part& part) { return part.cell.input_offset == kOnDevice; };
    RankId without;
    return parts_.size() == static_cast<std::size_t>(communicator_->size()) &&
           std::all_of(parts_.begin(), parts_.end(), kept) && keeper->Version(&without) != 0;
  }

  Status Locate() {
    const Call& call = resolved_->call;
    resolved_->on_devices = StayOnDevices();
    if (resolved_->on_devices) {
      resolved_->device_input = &pending_.request.input;
      resolved_->device_output = &pending_.request.output;
    }
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    const bool all_outputs = resolved_->collective->reach() == Collective::Reach::kAllOutputs;
    resolved_->reachable = true;
    resolved_->inputs.reserve(parts_.size());
    resolved_->outputs.reserve(parts_.size());
    for (const ParticipantId each : FirstIds<ParticipantId>(call.num_ranks)) {
      resolved_->inputs.push_back(nullptr);
      resolved_->outputs.push_back(nullptr);
      const Part& part = parts_[each.index()];
      if (!part.member.valid()) continue;
      const std::uint64_t bytes = resolved_->collective->InputCount(call, each) * element_bytes;
      const bool own = each == resolved_->self;
      if (own && bytes != pending_.bytes) return Damaged("number of rows");
      if (bytes == 0) continue;
      const Cell& cell = part.cell;
      if (cell.input_offset == kOnDevice && !resolved_->on_devices) resolved_->all_bounced = false;
      if (own && !(cell == pending_.cell)) return Damaged("address");
      const ArenaView& view = group_->view(part.member.value());
      if (!Locate(view, cell.input_offset, bytes, &resolved_->inputs.back())) return Damaged("address");
      if (resolved_->inputs.back() == nullptr) resolved_->reachable = false;
      if (!all_outputs) continue;
      const void* output = nullptr;
      if (!Locate(view, cell.output_offset, bytes, &output)) return Damaged("address");
      if (OverlapInPart(resolved_->inputs.back(), output, bytes)) return Damaged("address");
      resolved_->outputs.back() = const_cast<void*>(output);
      if (output == nullptr) resolved_->reachable = false;
    }
    return {};
  }

  // False when the offset leads outside. *address is nullptr for private memory.
  static bool Locate(const ArenaView& view, std::uint64_t offset, std::uint64_t bytes, const void** address) {
    *address = nullptr;
    if (offset == kNotInArena || offset == kOnDevice) return true;
    *address = view.Resolve(offset, bytes);
    return *address != nullptr;
  }

  Communicator* const communicator_;
  LocalGroup* const group_;
  const PendingRequest& pending_;
  ResolvedRequest* const resolved_;
  std::vector<Part> parts_;
  bool all_hosts_keep_ = false;
};

}  // namespace

bool OverlapInPart(const void* input, const void* output, std::uint64_t bytes) {
  if (input == nullptr || output == nullptr || input == output) return false;
  const auto a = reinterpret_cast<std::uintptr_t>(input), b = reinterpret_cast<std::uintptr_t>(output);
  return (a < b ? b - a : a - b) < bytes;
}

Call CallOf(const Request& request) {
  Call call;
  call.operation = request.operation;
  call.num_rows = request.shape.empty() ? 1 : static_cast<std::uint64_t>(request.shape[0]);
  for (std::size_t i = 1; i < request.shape.size(); ++i) {
    call.row_count *= static_cast<std::uint64_t>(request.shape[i]);
  }
  return call;
}

Status Resolve(Communicator* communicator, const PendingRequest& pending, ResolvedRequest* resolved) {
  return Resolver(communicator, pending, resolved).Run();
}

}  // namespace tf_smddp
