#include "tests/pretend_gpu/nccl/launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "tests/pretend_gpu/nccl/meeting.h"
#include "tests/pretend_gpu/nccl/order.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/types.h"
#include "tests/pretend_gpu/point.h"

namespace pretend_gpu::nccl {
namespace {

// One stream waits for another.
void Order(CUstream first, CUstream then) {
  CUevent event = nullptr;
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  cuEventRecord(event, first);
  cuStreamWaitEvent(then, event, 0);
  cuEventDestroy_v2(event);
}

// With PRETEND_GPU_NCCL_ROOM: takes a device of this process, on which the kernels of no other communicator
// run meanwhile.
class Room {
 public:
  explicit Room(Communicator* communicator) : communicator_(communicator) {
    if (!GetSettings().one_at_once) return;
    const BlockedScope blocked;
    std::unique_lock<std::mutex> lock(mu_);
    Taken& taken = taken_[communicator->device];
    while (taken.kernels > 0 && taken.communicator != communicator && !communicator->aborted()) {
      freed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    if (communicator->aborted()) return;
    taken.communicator = communicator;
    ++taken.kernels;
    took_ = true;
  }
  ~Room() {
    if (!took_) return;
    std::lock_guard<std::mutex> lock(mu_);
    --taken_[communicator_->device].kernels;
    freed_.notify_all();
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

 private:
  struct Taken {
    const Communicator* communicator = nullptr;
    int kernels = 0;
  };

  static inline std::mutex& mu_ = *new std::mutex;
  static inline std::condition_variable& freed_ = *new std::condition_variable;
  static inline std::map<int, Taken>& taken_ = *new std::map<int, Taken>;

  Communicator* const communicator_;
  bool took_ = false;
};

std::vector<Seat> SeatsOf(const std::vector<Part>& parts) {
  std::vector<Seat> seats;
  for (const Part& part : parts) seats.push_back(part.seat);
  return seats;
}

// The kernel, on the stream's thread.
void Run(Communicator& communicator, const std::vector<Part>& parts) {
  const Communicator::Waiting waiting(&communicator);
  const Room room(&communicator);
  const auto seats = SeatsOf(parts);
  std::vector<std::uint64_t> offsets;
  for (const Part& part : parts) offsets.push_back(PutSent(communicator, part));
  for (const Part& part : parts) PoisonReceived(part);
  const bool fails = std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.fails; });
  if (fails) communicator.Fail();
  if (!communicator.failed() && !communicator.aborted()) {
    for (std::size_t i = 0; i < parts.size(); i++) {
      Arrive(communicator, seats[i], offsets[i], parts[i].counts.sent * SizeOf(parts[i].operation.type));
    }
  }
  communicator.board->Ring();
  const bool met = !communicator.aborted() && Meet(communicator, seats);
  // A rank may be through long before another.
  if (met && GetSettings().spoils) std::this_thread::sleep_for(std::chrono::microseconds(std::rand() % 1000));
  if (met && !IsSpoiled(communicator, seats)) {
    for (const Part& part : parts) TakeReceived(communicator, part);
  }
  Leave(communicator, seats, met);
  communicator.board->Ring();
}

}  // namespace

std::uint64_t NextIssue() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

ncclResult_t EnqueueLaunch(const std::shared_ptr<Communicator>& communicator, std::vector<Part> parts,
                           std::vector<CUstream> streams) {
  const std::uint64_t issue = NextIssue();
  const ContextScope scope(communicator->context);
  const auto is_between_two = [](const Part& part) { return IsBetweenTwo(part.operation.kind); };
  if (std::any_of(parts.begin(), parts.end(), is_between_two)) {
    const ncclResult_t error = communicator->TakePeerMemory();
    if (error != ncclSuccess) return error;
  }
  for (std::size_t i = 0; i < parts.size(); i++) {
    parts[i].calls = static_cast<int>(parts.size());
    parts[i].fails = communicator->NextCallFails();
    parts[i].seat = Post(*communicator, parts[i].operation, issue, FactsOf(streams[i]).id);
  }
  CheckOrder(*communicator);
  const CUstream first = streams.front();
  std::set<CUstream> others(streams.begin(), streams.end());
  others.erase(first);
  for (const CUstream other : others) Order(other, first);
  Work work;
  // A shared one, since a std::function is copied.
  auto shared = std::make_shared<const std::vector<Part>>(std::move(parts));
  work.wanted_elsewhere = [communicator, seats = SeatsOf(*shared)] { return IsWanted(*communicator, seats); };
  work.run = [communicator, shared = std::move(shared)] { Run(*communicator, *shared); };
  communicator->NoteEnqueued(EnqueueWork(first, std::move(work)));
  for (const CUstream other : others) Order(first, other);
  return ncclSuccess;
}

}  // namespace pretend_gpu::nccl
