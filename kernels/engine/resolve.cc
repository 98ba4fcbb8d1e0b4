#include "kernels/engine/resolve.h"

#include <cstring>
#include <string>

namespace tf_smddp {
namespace {

// No tensor is that large: a length above it comes from damaged memory.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 46;

class Resolver {
 public:
  Resolver(Communicator* communicator, const PendingRequest& pending, ResolvedRequest* resolved)
      : communicator_(communicator), pending_(pending), resolved_(resolved) {}

  Status Run() {
    const MemberMask participants(communicator_->table().Participants(pending_.slot, pending_.ticket));
    const MemberId self(communicator_->index());
    if (!MemberMask::FirstN(communicator_->size()).ContainsAll(participants) ||
        !participants.Contains(self)) {
      return Damaged("participants");
    }
    resolved_->participants = participants;
    resolved_->self = ParticipantId(participants.CountBelow(self));
    resolved_->members.assign(participants.begin(), participants.end());
    cells_.reserve(resolved_->members.size());
    for (const MemberId member : resolved_->members) {
      cells_.push_back(communicator_->table().CellOf(pending_.place(), member.value()));
    }
    Status status = Describe();
    if (status.ok()) status = Locate();
    return status;
  }

 private:
  Status Damaged(const std::string& what) const {
    return Internal("shared memory is corrupt: invalid " + what + " for " +
                    DescribeManifest(pending_.manifest));
  }

  Status Describe() {
    const Request& request = pending_.request;
    Call& call = resolved_->call;
    resolved_->collective = &FindCollective(request.operation.kind);
    call = CallOf(request);
    call.num_ranks = resolved_->participants.size();
    const CollectiveInfo& info = InfoOf(request.operation.kind);
    if (info.Is(kHasRoot)) {
      const MemberId root(communicator_->IndexOf(request.operation.root.value()));
      if (!resolved_->participants.Contains(root)) {
        return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                  ": the root has left the process set");
      }
      call.root = ParticipantId(resolved_->participants.CountBelow(root));
    }
    if (info.Is(kRowsDiffer) && !info.Is(kHasSplits)) {
      for (const Cell& cell : cells_) call.rows.push_back(cell.rows);
    }
    if (info.Is(kHasSplits)) {
      Status status = ReadSplits();
      if (!status.ok()) return status;
    }
    return CheckRows();
  }

  Status ReadSplits() {
    if (resolved_->participants != MemberMask::FirstN(communicator_->size())) {
      return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                ": a rank that it sends to has left the process set");
    }
    const auto bytes = static_cast<std::uint64_t>(communicator_->size()) * sizeof(std::uint64_t);
    for (int member = 0; member < communicator_->size(); ++member) {
      const std::uint64_t offset = cells_[static_cast<std::size_t>(member)].splits_offset;
      const std::byte* splits = communicator_->view(member).Resolve(offset, bytes);
      if (splits == nullptr || offset % alignof(std::uint64_t) != 0) return Damaged("splits");
      for (int receiver = 0; receiver < communicator_->size(); ++receiver) {
        std::uint64_t rows;
        std::memcpy(&rows, splits + static_cast<std::size_t>(receiver) * sizeof rows, sizeof rows);
        resolved_->call.rows.push_back(rows);
      }
    }
    return {};
  }

  Status CheckRows() const {
    const std::uint64_t row_bytes = resolved_->call.row_count * DTypeBytes(resolved_->call.operation.dtype);
    std::uint64_t total = 0;
    for (const std::uint64_t rows : resolved_->call.rows) {
      if (rows > kMaxBytes || (row_bytes > 0 && rows > kMaxBytes / row_bytes))
        return Damaged("number of rows");
      total += rows * row_bytes;
      if (total > kMaxBytes) return Damaged("number of rows");
    }
    return {};
  }

  Status Locate() {
    const Call& call = resolved_->call;
    const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
    const bool all_outputs = resolved_->collective->reach() == Collective::Reach::kAllOutputs;
    resolved_->reachable = true;
    const std::vector<MemberId>& members = resolved_->members;
    resolved_->inputs.reserve(members.size());
    resolved_->outputs.reserve(members.size());
    for (const ParticipantId each : FirstIds<ParticipantId>(call.num_ranks)) {
      const std::uint64_t bytes = resolved_->collective->InputCount(call, each) * element_bytes;
      resolved_->inputs.push_back(nullptr);
      resolved_->outputs.push_back(nullptr);
      const bool own = each == resolved_->self;
      if (own && bytes != pending_.bytes) return Damaged("number of rows");
      if (bytes == 0) continue;
      const Cell& cell = cells_[each.index()];
      if (own && !(cell == pending_.cell)) return Damaged("address");
      const ArenaView& view = communicator_->view(members[each.index()].value());
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
    if (offset == kNotInArena) return true;
    *address = view.Resolve(offset, bytes);
    return *address != nullptr;
  }

  Communicator* const communicator_;
  const PendingRequest& pending_;
  ResolvedRequest* const resolved_;
  std::vector<Cell> cells_;  // of each participant
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
