#include "kernels/collectives/backends/wire/wire_backend.h"

#include <cstdint>

#include "kernels/collectives/backends/wire/gather_transfer.h"
#include "kernels/collectives/backends/wire/hierarchical_transfer.h"

namespace tf_smddp {
namespace {

class BetweenHosts : public Backend {
 public:
  Parts Join(const CommunicatorView& communicator) override {
    Parts parts;
    Wire* const wire = communicator.wire;
    if (wire == nullptr) return parts;
    const int rank = communicator.rank().value();
    parts.transfers.push_back(std::make_unique<HierarchicalTransfer>(
        wire, communicator.id, communicator.hosts, rank, communicator.arena,
        static_cast<std::size_t>(communicator.config->test_grouped_hosts)));
    // It takes what the others do not.
    parts.transfers.push_back(
        std::make_unique<GatherTransfer>(wire, communicator.id, communicator.hosts, rank, communicator.arena,
                                         static_cast<std::uint64_t>(communicator.config->chunk_bytes)));
    return parts;
  }
};

}  // namespace

std::unique_ptr<Backend> WireBackend() { return std::make_unique<BetweenHosts>(); }

}  // namespace tf_smddp
