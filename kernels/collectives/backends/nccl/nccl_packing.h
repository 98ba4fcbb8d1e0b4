// Packing: tensors go to NCCL in a buffer on the device: small ones that are reduced alike, as one, and
// compressed ones.
//
// Place in the stack: between nccl_calls.h and nccl_transfer.h. The tensors are copied into the buffer, and
// compressed; the buffer is reduced in place; and the results are copied out of it. All of that is on one
// stream. If the buffer is too small for all of it, there are several *rounds*, one after the other.
//
// The rule: an allreduce of at most kMostPackedBytes is packed, if there is another one with the same type,
// op and factor in its group, for as long as the buffer has room. Larger ones go out as they are, since
// packing reads and writes each byte twice more. A GPU's memory moves a few MB in the microseconds that NCCL
// needs for each call, so the limit is on the safe side. It was chosen by this reckoning; no machine with
// several GPUs was at hand. Compressed tensors always go through the buffer. With SMDDP_DETERMINISTIC each
// group has one request: Note [One request a group] in nccl_transfer.cc.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PACKING_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PACKING_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/common/status.h"
#include "kernels/cuda/copier.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::nccl {

constexpr std::uint64_t kMostPackedBytes = 256 << 10;

// The size of the buffer, from the cap that seals a batch: a batch of small tensors fits, the last of which
// may go beyond the cap. A compressed tensor may be much larger than that; with fewer bytes it would take
// many rounds, and with more of them nothing is gained.
constexpr std::uint64_t PackingBufferBytes(std::uint64_t bucket_cap_bytes) {
  return std::clamp<std::uint64_t>(bucket_cap_bytes + kMostPackedBytes, 16 << 20, 64 << 20);
}

// A group of calls, what moves tensors into the buffer before it, and out of it after it.
struct PackedRound {
  std::vector<cuda::Copy> in;
  std::vector<NcclCall> calls;
  std::vector<cuda::Copy> out;
};

// Makes rounds of the calls of a group, one at least. `buffer` has `bytes` bytes, a multiple of 16, and is
// aligned to 16 bytes. Ranks with the same calls, apart from addresses, get the same rounds. Pure.
std::deque<PackedRound> Pack(void* buffer, std::uint64_t bytes, const std::vector<NcclCall>& calls);

// The buffer, and the kernels that copy. All methods: one thread at a time.
class Packer {
 public:
  // `bytes`: of the buffer. Errors: Internal (tf_smddp was built without device code, or what the driver
  // says).
  static Status Open(const Place& place, std::uint64_t bytes, std::unique_ptr<Packer>* opened);
  // When nothing of it is on a stream.
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Begins with the calls of a group, when those before are done, or forgotten.
  void Begin(const std::vector<NcclCall>& calls) {
    rounds_ = Pack(reinterpret_cast<void*>(buffer_), bytes_, calls);
  }
  // Whether all rounds are on the stream.
  bool done() const { return rounds_.empty(); }
  // Puts the next round on `stream`, but for the copies out of the buffer. `stream` is always the same.
  // Errors: Internal.
  Status Enqueue(Communicator* communicator, cuda::Stream stream);
  // Puts these copies on the stream, if a round waits for them; when the communicator is ready, so that the
  // round's calls are there. Errors: Internal.
  Status Unpack(cuda::Stream stream);
  // Lets go of what is not on the stream: the step has failed.
  void Forget();

 private:
  Packer(const Place& place, std::uint64_t bytes) : place_(place), bytes_(bytes) {}

  const Place place_;
  const std::uint64_t bytes_;
  std::unique_ptr<cuda::Copier> copier_;
  cuda::DeviceAddress buffer_ = 0;
  std::deque<PackedRound> rounds_;
  bool enqueued_ = false;  // the first of them, but for its copies out of the buffer
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PACKING_H_
