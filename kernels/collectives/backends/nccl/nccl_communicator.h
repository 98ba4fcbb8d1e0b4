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
//
// Note [The end of all]: when a rank has died, kernels wait for it until NCCL's abort flag is set. Meanwhile
// any call of CUDA may block: the driver keeps a context locked while cuMemFree, or the first use of a
// kernel, waits for what is on the GPU. So when the job ends, each communicator of this rank is aborted in a
// thread of its own, and that thread makes no other call of CUDA. The first thing that ncclCommAbort does is
// to set the flag, in every version from 2.14 on; only then does it wait and free. So all kernels end, and
// nothing waits for the order in which the aborts come. A thread that is in another call of NCCL, and blocks
// there in the driver, does not hold up the abort for longer than kLongestCall, although NCCL forbids the two
// at once: the job has failed, and would hang otherwise. (ncclCommRevoke of NCCL 2.28 is no help: it clears
// the flag again, and calls that the stream has not come to by then would wait.)
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_calls.h"
#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/common/status.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::nccl {

class Communicator;

// The communicators of this rank that have not been destroyed. Any thread.
class Communicators {
 public:
  // An abort begins so long after it was asked for.
  explicit Communicators(std::chrono::milliseconds delay) : delay_(delay) {}
  std::chrono::milliseconds delay() const { return delay_; }

  // Begins to abort all of them: Note [The end of all]. It waits for nothing, and is called again until the
  // end, since the system may have no thread for it now.
  void AbortAll();

 private:
  friend class Communicator;

  const std::chrono::milliseconds delay_;
  std::mutex mu_;
  std::set<Communicator*> all_;  // guarded by mu_
};

// Where a communicator's calls are made. All outlive it.
struct Place {
  const Library* library = nullptr;
  const cuda::Driver* driver = nullptr;
  cuda::Context context = nullptr;  // a device's primary one
  std::shared_ptr<Communicators> communicators = nullptr;
};

class Communicator {
 public:
  // Begins to make a communicator of `num_ranks` ranks, of which this is `rank`; each passes the same id,
  // which Library::GetUniqueId has made for it alone. Errors: Internal, what NCCL says.
  static Status Make(const Place& place, const UniqueId& id, int num_ranks, int rank,
                     std::unique_ptr<Communicator>* made);

  ~Communicator();
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
  // they have not come past. Other ranks are not told: they abort, too. It may wait for the device to notice,
  // and makes no call of CUDA before its kernels know (Note [The end of all]).
  // Calls after the first one, or beside it, wait for its end.
  void Abort();

 private:
  friend class Communicators;

  // How long an abort waits for the call that is under way.
  static constexpr std::chrono::seconds kLongestCall{1};

  explicit Communicator(const Place& place) : place_(place) {}

  Status Begin() const;
  Status Note(const char* call, Result result);
  Status Put(const NcclCall& call, cuda::Stream stream);
  Status OpOf(const NcclCall& call, Op* op);
  Status ForgetScaledSums();

  const Place place_;
  std::mutex aborting_;                  // held during the abort
  std::mutex mu_;                        // held during each call of NCCL but the abort
  std::atomic<Handle> handle_{nullptr};  // nullptr: aborted, or being so; else it changes with mu_ held only,
                                         // but for an abort after kLongestCall
  bool in_progress_ = false;             // guarded by mu_, as is what follows
  std::map<std::pair<DataType, std::uint64_t>, Op> scaled_sums_;  // kMostScaledSums, and those of a group
  std::thread ending_;                                            // guarded by Communicators::mu_
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_
