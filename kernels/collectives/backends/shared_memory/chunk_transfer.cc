#include "kernels/collectives/backends/shared_memory/chunk_transfer.h"

#include <algorithm>
#include <utility>

namespace tf_smddp {
namespace {

// Smaller chunks cost more than a further rank saves (measured with 2 ranks).
constexpr std::uint64_t kLeastChunkBytes = 32 << 10;

}  // namespace

std::uint64_t ChunkTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState* batch) {
  requests_ = std::move(requests);
  plan_.Clear();
  const std::uint64_t chunk_bytes = ChunkBytes();
  for (const ResolvedRequest* request : requests_) {
    plan_.Add(request->call.count(), chunk_bytes / DTypeBytes(request->call.operation.dtype));
  }
  batch_ = plan_.total() > 0 ? batch : nullptr;
  return plan_.total();
}

// A chunk is small enough for every rank to get one, even of a small batch.
std::uint64_t ChunkTransfer::ChunkBytes() const {
  std::uint64_t bytes = 0;
  for (const ResolvedRequest* request : requests_) {
    bytes += request->call.count() * DTypeBytes(request->call.operation.dtype);
  }
  const std::uint64_t rounded = (bytes / size_ + kLeastChunkBytes - 1) / kLeastChunkBytes * kLeastChunkBytes;
  return std::min(std::max(rounded, kLeastChunkBytes), chunk_bytes_);
}

Transfer::Progress ChunkTransfer::Step() {
  std::uint64_t chunk;
  if (!batch_->Claim(plan_.total(), from_back_, &chunk)) {
    batch_ = nullptr;
    return {};
  }
  const ChunkPlan::Chunk part = plan_.At(chunk);
  const ResolvedRequest& request = *requests_[part.item];
  request.collective->Direct(request.call, request.self, request.inputs.data(), request.outputs.data(),
                             part.begin, part.count);
  return {/*moved=*/true, /*unit_done=*/true, /*peers_wait=*/false};
}

}  // namespace tf_smddp
