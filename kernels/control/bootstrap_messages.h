// What the ranks of a host send each other in init(), in this order: a hello to rank 0; rank 0's verdict, and
// an introduction of each rank; a verdict ("ready") to rank 0, and the last one back ("go").
#ifndef TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_MESSAGES_H_
#define TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_MESSAGES_H_

#include <cstdint>

#include "kernels/common/config.h"
#include "kernels/common/status.h"

namespace tf_smddp {

constexpr std::uint64_t kHelloMagic = 0x326f6c6c6548u;  // "Hello2": changes with any of these messages

struct Hello {
  std::uint64_t magic;
  std::uint64_t token;  // the run's, see rendezvous.h
  std::int32_t rank;
  std::int32_t size;
  std::int64_t bucket_cap_bytes;
  std::int64_t small_bytes;
  std::int64_t chunk_bytes;
  std::int64_t table_slots;
  std::uint64_t arena_bytes;
};

// Rank 0 to the others, and back ("ready"): all is well, or why not.
struct Verdict {
  std::uint32_t ok;
  char text[1020];
};

struct Introduction {
  std::int32_t rank;
  std::int32_t pid;
  std::uint64_t arena_bytes;
  std::uint64_t start_ticks;
  std::uint32_t has_pidfd;
  std::uint32_t padding;
};

Hello MakeHello(const Config& config, std::uint64_t token, std::uint64_t arena_bytes);

// Ends a text that is too long early.
Verdict MakeVerdict(const Status& status);

// What `verdict`, as it was received, says.
Status StatusOf(const Verdict& verdict);

// Whether a rank with this hello fits to rank 0's: Internal naming the setting and both values.
Status CheckHello(const Hello& theirs, const Hello& ours);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_BOOTSTRAP_MESSAGES_H_
