// The messages of the bootstrap (bootstrap.h). A client and rank 0 exchange them in this order:
//   1. client: a Hello; then, if it has no arena to send, a StatusMessage with the reason.
//   2. rank 0: a StatusMessage and, if it is OK, a PeerInfo for each rank.
//   3. client: a StatusMessage ("ready").
//   4. rank 0: a StatusMessage ("go").
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_MESSAGES_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_MESSAGES_H_

#include <cstdint>

#include "kernels/common/config.h"
#include "kernels/common/status.h"

namespace tf_smddp {

// "Hello3". It must change when any of these messages does.
constexpr std::uint64_t kHelloMagic = 0x336f6c6c6548u;

struct Hello {
  std::uint64_t magic;
  std::uint64_t token;  // identifies the run, see rendezvous.h
  std::int32_t rank;
  std::int32_t size;
  std::int64_t bucket_cap_bytes;
  std::int64_t small_bytes;
  std::int64_t chunk_bytes;
  std::int64_t table_slots;
  std::int64_t deterministic;
  std::uint64_t arena_bytes;
};

// A status on its way from one process to another.
struct StatusMessage {
  std::uint32_t ok;
  char text[1020];
};

// Describes one rank to another. The descriptors of its arena and, if it has one, its pidfd come with the
// message.
struct PeerInfo {
  std::int32_t rank;
  std::int32_t pid;
  std::uint64_t arena_bytes;
  std::uint64_t start_ticks;
  std::uint32_t has_pidfd;
  std::uint32_t padding;
};

Hello MakeHello(const Config& config, std::uint64_t token, std::uint64_t arena_bytes);

// Converts a status. A text that does not fit is cut.
StatusMessage MakeStatusMessage(const Status& status);

// Converts a received message, whose bytes need not be a terminated text, back into a status.
Status StatusOf(const StatusMessage& message);

// Checks that a client's hello fits to rank 0's. Errors: Internal, naming the setting and both values.
Status CheckHello(const Hello& theirs, const Hello& ours);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_MESSAGES_H_
