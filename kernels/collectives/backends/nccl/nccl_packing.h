// Packing: small tensors that are reduced alike go to NCCL as one.
//
// Place in the stack: between nccl_calls.h and nccl_transfer.h. The tensors are copied into a buffer on the
// device, the buffer is reduced in place, and the results are copied out of it; all of that is on one stream.
//
// The rule: an allreduce of at most kMostPackedBytes is packed, if there is another one with the same type,
// op and factor in its group, for as long as the buffer has room. Larger ones go out as they are, since
// packing reads and writes each byte twice more. A GPU's memory moves a few MB in the microseconds that NCCL
// needs for each call, so the limit is on the safe side. It was chosen by this reckoning; no machine with
// several GPUs was at hand.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PACKING_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PACKING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/common/status.h"
#include "kernels/cuda/copier.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::nccl {

constexpr std::uint64_t kMostPackedBytes = 256 << 10;
constexpr std::uint64_t kPackingBufferBytes = 8 << 20;

// What moves the tensors of a group into the buffer, before its calls, and out of it, after them.
struct Packing {
  std::vector<cuda::Copy> in, out;
};

// Replaces the calls that are packed by calls on `buffer`, which has kPackingBufferBytes and is aligned to 16
// bytes. Ranks with the same calls, apart from addresses, get the same calls.
Packing Pack(void* buffer, std::vector<NcclCall>* calls);

// The buffer, and the kernel that copies. Each group is unpacked, or forgotten, before the next. All methods:
// one thread at a time.
class Packer {
 public:
  // Errors: Internal (tf_smddp was built without device code, or what the driver says).
  static Status Open(const Place& place, std::unique_ptr<Packer>* opened);
  // When nothing of it is on a stream.
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Packs what a group packs, and begins the group. `stream` is the same for all groups. Errors: Internal.
  Status Enqueue(std::vector<NcclCall> calls, Communicator* communicator, cuda::Stream stream);
  // Copies the results of that group to where they belong; when the communicator is ready, so that its calls
  // are on the stream. Errors: Internal.
  Status Unpack(cuda::Stream stream);
  // Its results go nowhere: the step has failed.
  void Forget() { out_.clear(); }

 private:
  explicit Packer(const Place& place) : place_(place) {}

  const Place place_;
  std::unique_ptr<cuda::Copier> copier_;
  cuda::DeviceAddress buffer_ = 0;
  std::vector<cuda::Copy> out_;  // of the group that was enqueued last
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PACKING_H_
