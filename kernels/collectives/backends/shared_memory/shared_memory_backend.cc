#include "kernels/collectives/backends/shared_memory/shared_memory_backend.h"

#include <cstddef>
#include <cstdint>

#include "kernels/collectives/backends/shared_memory/chunk_transfer.h"
#include "kernels/collectives/backends/shared_memory/own_output_transfer.h"
#include "kernels/collectives/backends/shared_memory/staged_transfer.h"

namespace tf_smddp {
namespace {

std::uint64_t ChunkBytes(const Config& config) { return static_cast<std::uint64_t>(config.chunk_bytes); }

class OnOneHost : public Backend {
 public:
  std::size_t SharedBytes(const Config& config, int num_members) const override {
    return StagedTransfer::SharedBytes(ChunkBytes(config), num_members);
  }

  Parts Join(const CommunicatorView& communicator) override {
    Parts parts;
    if (communicator.wire != nullptr) return parts;
    const int self = communicator.self.value(), size = communicator.num_members();
    const std::uint64_t chunk_bytes = ChunkBytes(*communicator.config);
    parts.transfers.push_back(std::make_unique<ChunkTransfer>(self, size, chunk_bytes));
    parts.transfers.push_back(std::make_unique<OwnOutputTransfer>(chunk_bytes));
    parts.transfers.push_back(std::make_unique<StagedTransfer>(communicator.shared, self, size, chunk_bytes));
    return parts;
  }
};

}  // namespace

std::unique_ptr<Backend> SharedMemoryBackend() { return std::make_unique<OnOneHost>(); }

}  // namespace tf_smddp
