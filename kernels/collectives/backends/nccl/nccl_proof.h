// Proof: small collectives of known numbers, by which a new communicator of NCCL is tried before it is used.
//
// Place in the stack: above nccl_calls.h, below nccl_start.h.
//
// A communicator that was made without an error may still hang in its first kernel, or give wrong numbers:
// where the GPUs' direct access to each other is broken (behind an IOMMU, in a virtual machine), or NVLink's
// switches are. So each rank adds 1 MiB to the others' in an allreduce, and the host compares the sums.
//
// Note [Memory of an exchange]: for the first all-to-all, NCCL connects each rank to each other one over all
// channels. On eight H100 that takes 3.3 GB of each GPU (github.com/NVIDIA/nccl/issues/1685), which most jobs
// never need, and which may not be there. So 1 MiB is exchanged only if the collective for which the
// communicator is made is an all-to-all.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PROOF_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PROOF_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_communicator.h"
#include "kernels/common/status.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::nccl {

class Proof {
 public:
  // Takes 3 MiB of the device's memory. Errors: Internal, what the driver says.
  static Status Open(const Place& place, int num_ranks, int rank, std::shared_ptr<Proof>* opened);
  // When nothing of it is on a stream.
  ~Proof();
  Proof(const Proof&) = delete;
  Proof& operator=(const Proof&) = delete;

  // Puts the numbers into the device's memory, on `stream`. The copies of Begin and End come to their
  // end before this lives no more. `exchanges`: whether there is an all-to-all, the same on all ranks.
  // Errors: Internal.
  Status Begin(cuda::Stream stream, bool exchanges);
  // The calls; behind Begin.
  std::vector<NcclCall> Calls() const;
  // Brings the results to the host, behind the calls, which are on the stream. Errors: Internal.
  Status End(cuda::Stream stream);

  // Compares the results, when the stream, or an error of it, has `reached` their end. Any thread.
  void Check(const Status& reached);
  // Whether that was done; then sets *outcome: OK, or Internal, which says which number is wrong. Any thread.
  bool checked(Status* outcome) const;

 private:
  Proof(const Place& place, int num_ranks, int rank);

  Status Compare() const;
  std::size_t bytes() const { return numbers_.size() * sizeof(std::uint32_t); }
  std::size_t PartAt(int part) const;
  void* AddressOf(int part, int peer) const;

  const Place place_;
  const int num_ranks_, rank_;
  const std::size_t count_;             // of numbers for each rank
  std::vector<std::uint32_t> numbers_;  // pinned; what is added, what is sent, what is received
  bool pinned_ = false, exchanges_ = false;
  cuda::DeviceAddress memory_ = 0;  // the same

  mutable std::mutex mu_;
  bool checked_ = false;  // guarded by mu_
  Status outcome_;        // guarded by mu_
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_PROOF_H_
