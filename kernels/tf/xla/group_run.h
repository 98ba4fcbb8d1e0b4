// GroupRun: the requests that one execution of a group has under way in a compiled program, from its first
// start to the last finish.
//
// Place in the stack: between the custom calls and kernels/engine. Not here: what the program looks like
// (call_emitter.h). No header of TensorFlow or XLA in here.
//
// XLA owns the buffers, and takes them back when a call has failed. So a failure is reported only when
// nothing is under way any more: what is, is withdrawn and waited for first.
#ifndef TF_SMDDP_KERNELS_TF_XLA_GROUP_RUN_H_
#define TF_SMDDP_KERNELS_TF_XLA_GROUP_RUN_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class GroupRun : public std::enable_shared_from_this<GroupRun> {
 public:
  // Of `places` requests, all in `communicator`.
  GroupRun(std::shared_ptr<Engine> engine, CommunicatorId communicator, std::size_t places);

  // A run that several calls share is known by a number, which is never 0. nullptr: there is none of this
  // number, or no more. Any thread.
  static std::uint64_t Keep(std::shared_ptr<GroupRun> run);
  static std::shared_ptr<GroupRun> Find(std::uint64_t number);
  static void Forget(std::uint64_t number);
  // Withdraws what all of them have under way, waits until nothing is, and forgets them. Any thread.
  static void WithdrawKept(const Status& why);

  // Submits the request of this place. An error: it was refused, and nothing of the group is under way any
  // more.
  Status Start(std::size_t place, Request request);

  // Waits for the request of this place, which was started. The first wait does the engine's work meanwhile.
  // An error: nothing of the group is under way any more.
  Status Finish(std::size_t place);

  // Where the request of this place writes its result.
  const void* OutputOf(std::size_t place) const { return entries_[place].output; }

  // Submits all requests and waits for them.
  Status Run(std::vector<Request> requests);

 private:
  struct Entry {
    std::uint64_t id = 0;
    bool started = false;
    bool ended = false;
    Status status;
    const void* output = nullptr;
  };

  void Submit(std::size_t place, Request request);
  void End(std::size_t place, const Status& status);
  Status FirstError();
  void WithdrawAll(const Status& why);

  const std::shared_ptr<Engine> engine_;
  const CommunicatorId communicator_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // guarded by mu_
  std::size_t under_way_ = 0;   // guarded by mu_
  std::atomic<bool> idle_{true};
  bool assisted_ = false;  // by the one thread that waits
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_GROUP_RUN_H_
