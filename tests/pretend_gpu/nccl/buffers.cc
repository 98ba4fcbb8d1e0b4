#include "tests/pretend_gpu/nccl/buffers.h"

#include <cstddef>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/types.h"

namespace pretend_gpu::nccl {
namespace {

// Returns at which byte of its send buffer a call that is in place has its receive buffer; less than 0: at
// which byte of the receive buffer the send buffer begins.
std::ptrdiff_t PlaceOf(const Operation& operation, int rank, std::size_t bytes) {
  const auto slice = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * operation.count * bytes);
  if (operation.kind == Kind::kAllGather) return -slice;
  return operation.kind == Kind::kReduceScatter ? slice : 0;
}

}  // namespace

Memory UseOwnMemory(const Communicator& communicator, const void* address, std::size_t bytes,
                    const char* what, const std::string& user) {
  Memory memory = UseMemory(address, bytes, what, user);
  if (memory.device >= 0 && memory.device != communicator.device) {
    End("the %s %p is memory of device %d, and %s is of device %d; pass memory of that device", what, address,
        memory.device, communicator.Describe().c_str(), communicator.device);
  }
  return memory;
}

void ResolveBuffers(const Communicator& communicator, const void* send, void* receive,
                    const std::string& user, Part* part) {
  const std::size_t bytes = SizeOf(part->operation.type);
  const std::size_t sent = part->counts.sent * bytes, received = part->counts.received * bytes;
  part->send = UseOwnMemory(communicator, send, sent, "send buffer", user);
  part->receive = UseOwnMemory(communicator, receive, received, "receive buffer", user);
  if (sent == 0 || received == 0) return;
  const char* const from = static_cast<const char*>(send);
  const char* const to = static_cast<const char*>(receive);
  const bool apart = from + sent <= to || to + received <= from;
  if (apart || to - from == PlaceOf(part->operation, communicator.rank, bytes)) return;
  End("the send buffer (%zu bytes at %p) and the receive buffer (%zu bytes at %p) of %s overlap, and are not "
      "in "
      "place; keep them apart, or pass the same memory as NCCL's documentation says for this call",
      sent, send, received, receive, Describe(part->operation).c_str());
}

}  // namespace pretend_gpu::nccl
