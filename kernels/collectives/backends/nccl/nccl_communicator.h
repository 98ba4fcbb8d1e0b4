// Communicator: some ranks, on one device each, that make NCCL's calls together.
//
// Place in the stack: above nccl_library.h and nccl_calls.h; a transfer holds one. It never waits: NCCL is
// asked not to block.
//
// Life: Make -> Poll until ready -> Enqueue -> Poll until ready -> … -> Abort
//   - What begins something may leave it *in progress*. Then nothing else may begin until Poll says ready.
//   - Poll, when nothing is in progress, tells of errors that have come up meanwhile: a rank that has died.
//   - A call reaches its stream while it is in progress. So an event behind it is recorded when Poll has said
//     ready, never before.
//   - After an error the communicator is of no more use, but its calls may still wait on the stream, for
//     ranks that will not come. Abort ends them.
//   - Abort is the end in any case. NCCL's other end, ncclCommFinalize and ncclCommDestroy, waits for other
//     ranks without a limit, and brings nothing if all ranks have come past all calls.
//
// Threads: any, and several at a time. Each method but Abort and the destructor returns quickly. Abort may be
// called while other threads are in other methods: NCCL's ncclCommAbort frees what they use, so it waits for
// the one call that is under way, and the others find that the communicator was aborted.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/common/status.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::nccl {

// Where a communicator's calls are made. All outlive it.
struct Place {
  const Library* library = nullptr;
  const cuda::Driver* driver = nullptr;
  cuda::Context context = nullptr;  // a device's primary one
};

class Communicator {
 public:
  // Begins to make a communicator of `num_ranks` ranks, of which this is `rank`; each passes the same id,
  // which Library::GetUniqueId has made for it alone. Errors: Internal, what NCCL says.
  static Status Make(const Place& place, const UniqueId& id, int num_ranks, int rank,
                     std::unique_ptr<Communicator>* made);

  ~Communicator() { Abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Sets *ready to whether nothing is in progress. Errors: Internal, what NCCL says of this rank or of
  // others; that it was aborted.
  Status Poll(bool* ready);

  // As Poll, but it waits up to 100 us until nothing is in progress: NCCL puts a group on the stream in a
  // thread of its own, which takes less than the shortest sleep.
  Status AwaitLaunch();

  // Makes the calls, in one group, on `stream` of the device. All ranks enqueue groups that fit together, in
  // the same order. The memory stays valid until the stream has come past them. Errors: Internal, also if
  // something is in progress; then nothing was enqueued, or the communicator is to be aborted.
  Status Enqueue(const std::vector<NcclCall>& calls, cuda::Stream stream);

  // Ends all calls of this rank, those that the stream has come to and those that it has not, and frees the
  // communicator. The outputs of these calls are undefined, and so are those of other ranks' calls that
  // they have not come past. Other ranks are not told: they abort, too. It may wait for the device to notice.
  // Calls after the first one do nothing.
  void Abort();

 private:
  explicit Communicator(const Place& place) : place_(place) {}

  Status Begin() const;
  Status Note(const char* call, Result result);
  Status Put(const NcclCall& call, cuda::Stream stream);
  Status OpOf(const NcclCall& call, Op* op);
  Status ForgetScaledSums();

  const Place place_;
  std::mutex mu_;            // held during each call of NCCL but the abort
  Handle handle_ = nullptr;  // guarded by mu_, as is what follows; nullptr: aborted, or being so
  bool in_progress_ = false;
  std::map<std::pair<DataType, std::uint64_t>, Op> scaled_sums_;  // kMostScaledSums, and those of a group
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_
