// Backend: what a folder of backends/ brings: transfers, and perhaps a use for tensors on devices.
//
// Place in the stack: the interface between kernels/engine, which knows no backend by name, and backends/.
// Each engine gets a list of its own (kernels/process/backends.cc), and each communicator then gets transfers
// of each backend in it.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKEND_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives/transfer.h"
#include "kernels/collectives/turn_record.h"
#include "kernels/common/config.h"
#include "kernels/common/logging.h"
#include "kernels/common/operation.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/status.h"
#include "kernels/common/wire.h"
#include "kernels/memory/buffer.h"

namespace tf_smddp {

// A communicator, as a backend sees it. All pointers stay valid for what the backend makes for it.
struct CommunicatorView {
  const Config* config = nullptr;
  const Logger* logger = nullptr;
  std::uint32_t id = 0;
  std::vector<int> ranks;               // of the job, in ascending order, as are the next two
  std::vector<std::vector<int>> hosts;  // the same ranks by host
  std::vector<int> members;             // those of this host
  MemberId self;                        // this rank, among the members
  Wire* wire = nullptr;                 // to the other hosts; nullptr if there are none
  std::shared_ptr<void> arena;          // owns the memory in which this rank's inputs lie
  std::byte* shared = nullptr;          // SharedBytes, at a cache line; zeros when the first member joins

  // For calls that all ranks must make in one order, of whichever communicator (turn_record.h).
  TurnRecord* turn_record = nullptr;
  std::atomic<std::uint64_t>* turn_counter = nullptr;
  // Only between hosts: asks that the turn of a batch be drawn on all hosts, in the same order as all others.
  // It does nothing on all ranks but the first one.
  std::function<void(std::uint64_t batch)> ask_for_turn;

  // For work that goes on after the end of a batch. Any thread calls these, perhaps after the communicator's
  // end.
  std::function<void(const std::string& text)> fail_job;
  std::function<Status()> job_error;  // with which it has ended; OK if it has not
  std::function<void()> wake;         // wakes this rank's progress thread

  int num_members() const { return static_cast<int>(members.size()); }
  RankId rank() const { return RankId(members[self.index()]); }
};

// Decides which tensors stay on their devices, for a transfer of the backend that moves them there. All
// methods: any thread.
class DeviceKeeper {
 public:
  virtual ~DeviceKeeper() = default;

  // Whether this rank keeps the tensors of a request on `device`. All ranks of the communicator take part in
  // the request. `elsewhere`: a rank because of which the hosts cannot keep theirs together; no rank when
  // none is known.
  virtual bool Keeps(const Operation& operation, const MemoryKind& device, RankId elsewhere) = 0;

  // Returns a number other than 0 if all members can use what they have kept together. It is the same on all
  // of them once each has kept a request, and hosts with different numbers do not fit. Returns 0 as long as
  // that is not known, and when it will never be; then *without is set to a rank because of which.
  virtual std::uint32_t Version(RankId* without) const = 0;

  // Whether the transfer has refused what was kept (Transfer::Prepare), and the members keep nothing any
  // more.
  virtual bool Refused() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // How much memory the members of a communicator share for it; a multiple of 64. The same on all ranks.
  virtual std::size_t SharedBytes(const Config& /*config*/, int /*num_members*/) const { return 0; }

  // Its parts for one communicator. A request is moved by the first transfer of all backends that takes
  // it. One backend at most has a keeper.
  struct Parts {
    std::vector<std::unique_ptr<Transfer>> transfers;
    std::unique_ptr<DeviceKeeper> keeper;
  };
  // This rank joins a communicator; it outlives the parts.
  virtual Parts Join(const CommunicatorView& communicator) = 0;

  // The job has ended. Begins to end all work on devices that may wait for other ranks, of all communicators
  // of this rank. It waits for nothing, and may be called again. Any thread.
  virtual void EndWork() {}
};

using Backends = std::vector<std::unique_ptr<Backend>>;

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKEND_H_
