#include "kernels/engine/resolve.h"

#include <cstring>
#include <string>

namespace tf_smddp {
namespace {

// No tensor is that large: a length above it comes from damaged memory.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 46;

int CountBits(std::uint64_t mask) { return __builtin_popcountll(mask); }

std::uint64_t LowBits(int count) { return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1; }

class Resolver {
 public:
  Resolver(Communicator* communicator, const PendingRequest& pending, ResolvedRequest* resolved)
      : communicator_(communicator), pending_(pending), resolved_(resolved) {}

  Status Run() {
    resolved_->participants = communicator_->table().Participants(pending_.slot, pending_.ticket);
    const int index = communicator_->index();
    if ((resolved_->participants & ~LowBits(communicator_->size())) != 0 ||
        (resolved_->participants >> index & 1) == 0) {
      return Damaged("its participants");
    }
    resolved_->rank = CountBits(resolved_->participants & LowBits(index));
    const auto count = static_cast<std::size_t>(CountBits(resolved_->participants));
    resolved_->members.reserve(count);
    for (std::uint64_t left = resolved_->participants; left != 0; left &= left - 1) {
      resolved_->members.push_back(__builtin_ctzll(left));
    }
    cells_.reserve(count);
    for (const int member : resolved_->members) {
      cells_.push_back(communicator_->table().CellOf(pending_.place(), member));
    }
    Status status = Describe();
    if (status.ok()) status = Locate();
    return status;
  }

 private:
  Status Damaged(const std::string& what) const {
    return Internal("the shared table is damaged: " + what + " of " + DescribeManifest(pending_.manifest) +
                    " cannot be");
  }

  Status Describe() {
    const Request& request = pending_.request;
    Call& call = resolved_->call;
    resolved_->collective = &FindCollective(request.kind);
    call = CallOf(request);
    call.num_ranks = CountBits(resolved_->participants);
    if (request.kind == CollectiveKind::kBroadcast) {
      const int root = communicator_->IndexOf(request.root);
      if ((resolved_->participants >> root & 1) == 0) {
        return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                  ": the root has left the process set");
      }
      call.root = CountBits(resolved_->participants & LowBits(root));
    }
    if (request.kind == CollectiveKind::kAllgather) {
      for (const Cell& cell : cells_) call.rows.push_back(cell.rows);
    }
    if (request.kind == CollectiveKind::kAlltoall) {
      Status status = ReadSplits();
      if (!status.ok()) return status;
    }
    return CheckRows();
  }

  Status ReadSplits() {
    if (resolved_->participants != LowBits(communicator_->size())) {
      return FailedPrecondition(DescribeManifest(pending_.manifest) +
                                ": a rank that it sends to has left the process set");
    }
    const auto bytes = static_cast<std::uint64_t>(communicator_->size()) * sizeof(std::uint64_t);
    for (int member = 0; member < communicator_->size(); ++member) {
      const std::uint64_t offset = cells_[static_cast<std::size_t>(member)].splits_offset;
      const std::byte* splits = communicator_->view(member).Resolve(offset, bytes);
      if (splits == nullptr || offset % alignof(std::uint64_t) != 0) return Damaged("the splits");
      for (int receiver = 0; receiver < communicator_->size(); ++receiver) {
        std::uint64_t rows;
        std::memcpy(&rows, splits + static_cast<std::size_t>(receiver) * sizeof rows, sizeof rows);
        resolved_->call.rows.push_back(rows);
      }
    }
    return {};
  }

  Status CheckRows() const {
    const std::uint64_t row_bytes = resolved_->call.row_count * DTypeBytes(resolved_->call.dtype);
    std::uint64_t total = 0;
    for (const std::uint64_t rows : resolved_->call.rows) {
      if (rows > kMaxBytes || (row_bytes > 0 && rows > kMaxBytes / row_bytes))
        return Damaged("the number of rows");
      total += rows * row_bytes;
      if (total > kMaxBytes) return Damaged("the number of rows");
    }
    return {};
  }

  Status Locate() {
    const Call& call = resolved_->call;
    const std::uint64_t element_bytes = DTypeBytes(call.dtype);
    const bool all_outputs = resolved_->collective->reach() == Collective::Reach::kAllOutputs;
    resolved_->reachable = true;
    const std::vector<int>& members = resolved_->members;
    resolved_->inputs.reserve(members.size());
    resolved_->outputs.reserve(members.size());
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const std::uint64_t bytes =
          resolved_->collective->InputCount(call, static_cast<int>(rank)) * element_bytes;
      resolved_->inputs.push_back(nullptr);
      resolved_->outputs.push_back(nullptr);
      if (static_cast<int>(rank) == resolved_->rank && bytes != pending_.bytes)
        return Damaged("the number of rows");
      if (bytes == 0) continue;
      const Cell& cell = cells_[rank];
      if (static_cast<int>(rank) == resolved_->rank && !(cell == pending_.cell)) return Damaged("the place");
      const ArenaView& view = communicator_->view(members[rank]);
      if (!Locate(view, cell.input_offset, bytes, &resolved_->inputs.back())) return Damaged("the place");
      if (resolved_->inputs.back() == nullptr) resolved_->reachable = false;
      if (!all_outputs) continue;
      const void* output = nullptr;
      if (!Locate(view, cell.output_offset, bytes, &output)) return Damaged("the place");
      if (OverlapInPart(resolved_->inputs.back(), output, bytes)) return Damaged("the place");
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
  std::vector<Cell> cells_;  // by number among the participants
};

}  // namespace

bool OverlapInPart(const void* input, const void* output, std::uint64_t bytes) {
  if (input == nullptr || output == nullptr || input == output) return false;
  const auto a = reinterpret_cast<std::uintptr_t>(input), b = reinterpret_cast<std::uintptr_t>(output);
  return (a < b ? b - a : a - b) < bytes;
}

Call CallOf(const Request& request) {
  Call call;
  call.kind = request.kind;
  call.dtype = request.dtype;
  call.op = request.op;
  call.prescale = request.prescale;
  call.postscale = request.postscale;
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
