// GroupRun: the requests of one execution of a group in a compiled program, from its first start to the last
// finish.
//
// Place in the stack: between the custom calls and kernels/engine. Not here: the form of the program
// (call_emitter.h). Uses no header of TensorFlow's or XLA's.
//
// XLA owns the buffers, and reuses them as soon as a call has failed. So a call returns an error only after
// all pending requests have been withdrawn and have ended.
#ifndef TF_SMDDP_KERNELS_TF_XLA_GROUP_RUN_H_
#define TF_SMDDP_KERNELS_TF_XLA_GROUP_RUN_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/common/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

// For a request whose output is not in the host's memory: has its argument called, once, when the request's
// result is in the output's memory; or with an error. It is called once, when the request has ended. All that
// it holds lives until the run is destroyed. nullptr for the host's memory.
using WhenWritten = std::function<void(std::function<void(const Status&)>)>;

class GroupRun : public std::enable_shared_from_this<GroupRun> {
 public:
  // For `places` requests, all in `communicator`, and with `ticket` if they are started one by one.
  GroupRun(std::shared_ptr<Engine> engine, CommunicatorId communicator, std::size_t places,
           std::int64_t ticket = -1);

  std::int64_t ticket() const { return ticket_; }

  // Several calls of a program share a run; the token that they pass on holds its number, which is never 0.
  // Find returns nullptr for a number that is not kept. Any thread.
  static std::uint64_t Keep(std::shared_ptr<GroupRun> run);
  static std::shared_ptr<GroupRun> Find(std::uint64_t number);
  static void Forget(std::uint64_t number);
  // Withdraws the pending requests of all kept runs, waits for their end, and forgets the runs. Any thread.
  static void WithdrawKept(const Status& why);

  // Submits the request of this place, which has ended when its output is written. When it returns an error,
  // the request was refused, and no request of the group is pending.
  Status Start(std::size_t place, Request request, WhenWritten when_written = nullptr);

  // Waits for the request of this place, which was started. The first wait progresses the engine meanwhile.
  // When it returns an error, no request of the group is pending.
  Status Finish(std::size_t place);

  // The buffer to which the request of this place writes its result.
  const void* OutputOf(std::size_t place) const { return entries_[place].output; }

  // Submits all requests and waits for them. `when_written`: one for each request, or none at all.
  Status Run(std::vector<Request> requests, std::vector<WhenWritten> when_written = {});

 private:
  struct Entry {
    std::uint64_t id = 0;
    bool started = false;
    bool ended = false;
    Status status;
    const void* output = nullptr;
    WhenWritten when_written;
  };

  void Submit(std::size_t place, Request request, WhenWritten when_written);
  void Done(std::size_t place, const Status& status);
  void End(std::size_t place, const Status& status);
  Status FirstError();
  void WithdrawAll(const Status& why);

  const std::shared_ptr<Engine> engine_;
  const CommunicatorId communicator_;
  const std::int64_t ticket_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // guarded by mu_
  std::size_t under_way_ = 0;   // guarded by mu_
  std::atomic<bool> idle_{true};
  bool assisted_ = false;  // the waiting thread has progressed the engine
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_GROUP_RUN_H_
