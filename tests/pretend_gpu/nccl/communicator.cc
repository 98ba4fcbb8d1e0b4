#include "tests/pretend_gpu/nccl/communicator.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/last_error.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/other_process.h"

namespace pretend_gpu::nccl {

Communicator::Communicator(int device, CUcontext context, bool blocking)
    : device(device), context(context), blocking(blocking) {}

Communicator::~Communicator() { AwaitMaker(); }

void Communicator::AwaitMaker() {
  if (maker_.joinable()) maker_.join();
}

void Communicator::Attach(std::shared_ptr<Board> its_board, int its_rank, int its_ranks) {
  board = std::move(its_board);
  rank = its_rank;
  ranks = its_ranks;
}

std::string Communicator::Describe() const {
  if (board == nullptr) return "a communicator that is being made";
  return board->name() + " (rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ")";
}

bool Communicator::NextCallFails() {
  const std::uint64_t number = ++calls_;
  return GetSettings().failing_rank == rank && GetSettings().failing_call == number;
}

ncclResult_t Communicator::TakeMemory(std::size_t bytes) {
  if (bytes == 0) return ncclSuccess;
  const ContextScope scope(context);
  CUdeviceptr taken = 0;
  if (cuMemAlloc_v2(&taken, bytes) != CUDA_SUCCESS) {
    return Refuse(ncclUnhandledCudaError, "Failed to CUDA calloc " + std::to_string(bytes) + " bytes");
  }
  std::lock_guard<std::mutex> lock(mu_);
  memory_.push_back(taken);
  return ncclSuccess;
}

ncclResult_t Communicator::TakePeerMemory() {
  if (std::exchange(has_peer_memory_, true)) return ncclSuccess;
  const ncclResult_t result = TakeMemory(GetSettings().peer_memory_bytes);
  if (result != ncclSuccess) error_ = result;
  return result;
}

void Communicator::FreeMemory() {
  std::vector<CUdeviceptr> memory;
  {
    std::lock_guard<std::mutex> lock(mu_);
    memory.swap(memory_);
  }
  if (memory.empty()) return;
  const ContextScope scope(context);
  for (const CUdeviceptr each : memory) cuMemFree_v2(each);
}

void Communicator::NoteEnqueued(WorkEnd end) {
  std::lock_guard<std::mutex> lock(mu_);
  enqueued_.erase(std::remove_if(enqueued_.begin(), enqueued_.end(), [](auto& old) { return old.reached(); }),
                  enqueued_.end());
  enqueued_.push_back(std::move(end));
}

void Communicator::Flush() {
  std::vector<WorkEnd> ends;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ends = std::move(enqueued_);
    enqueued_.clear();
  }
  for (const WorkEnd& end : ends) end.wait();
}

void Communicator::Abort() {
  aborted_ = true;
  AwaitMaker();
  if (board != nullptr) board->Ring();
  std::unique_lock<std::mutex> lock(mu_);
  // It will not reach its stream, and uses its memory no more.
  deferred_ = nullptr;
  ended_.wait(lock, [&] { return waiting_ == 0; });
}

Communicator::Waiting::Waiting(Communicator* communicator) : communicator_(communicator) {
  std::lock_guard<std::mutex> lock(communicator_->mu_);
  communicator_->waiting_++;
}

Communicator::Waiting::~Waiting() {
  std::lock_guard<std::mutex> lock(communicator_->mu_);
  communicator_->waiting_--;
  communicator_->ended_.notify_all();
}

void Communicator::Fail() {
  failed_ = true;
  error_ = ncclSystemError;
  std::lock_guard<Board> lock(*board);
  member(rank).failed = true;
}

void Communicator::MakeInBackground(std::function<ncclResult_t()> make) {
  made_ = ncclInProgress;
  maker_ = std::thread([this, make = std::move(make)] {
    pthread_setname_np(pthread_self(), "pretend-nccl");
    made_ = make();
  });
}

ncclResult_t Communicator::AsyncError() {
  if (made_ != ncclSuccess) return made_;
  std::function<void()> action;
  {
    std::lock_guard<std::mutex> lock(mu_);
    action = std::exchange(deferred_, nullptr);
  }
  if (action) action();
  if (error_ != ncclSuccess) return error_;
  std::lock_guard<Board> lock(*board);
  for (int i = 0; i < ranks; i++) {
    const Member& other = member(i);
    if (i == rank || other.left) continue;
    const bool dead = other.process != getpid() && !IsAlive(other.process);
    if (!dead && !other.failed) continue;
    error_ = Refuse(ncclRemoteError, Describe() + ": rank " + std::to_string(i) +
                                         (dead ? ", process " + std::to_string(other.process) + ", has ended"
                                               : std::string(" has failed")));
  }
  return error_;
}

void Communicator::Defer(std::function<void()> action) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!aborted_) deferred_ = std::move(action);
}

ncclResult_t Communicator::Ready() {
  bool in_progress = made_ == ncclInProgress;
  {
    std::lock_guard<std::mutex> lock(mu_);
    in_progress = in_progress || deferred_ != nullptr;
  }
  if (in_progress) {
    End("%s is still in progress, since it does not block; call ncclCommGetAsyncError until that no longer "
        "says "
        "ncclInProgress",
        Describe().c_str());
  }
  return made_ != ncclSuccess ? made_ : error_;
}

Communicator::Using::Using(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {
  std::lock_guard<std::mutex> lock(communicator_->mu_);
  if (communicator_->uses_ > 0 && communicator_->user_ != std::this_thread::get_id()) {
    End("another thread is in a call, or in a group that it has not ended, with %s; let one thread at a time "
        "use "
        "a communicator",
        communicator_->Describe().c_str());
  }
  communicator_->user_ = std::this_thread::get_id();
  communicator_->uses_++;
}

Communicator::Using::~Using() {
  if (communicator_ == nullptr) return;
  std::lock_guard<std::mutex> lock(communicator_->mu_);
  communicator_->uses_--;
}

HandleTable<Communicator>& Communicators() {
  static auto* communicators = new HandleTable<Communicator>("communicator");
  return *communicators;
}

namespace {

std::mutex all_mu;

// Guarded by all_mu.
std::vector<std::shared_ptr<Communicator>>& All() {
  static auto* all = new std::vector<std::shared_ptr<Communicator>>;
  return *all;
}

void TellOfLeaks() {
  const auto left = AllCommunicators();
  if (left.empty() || !GetSettings().leaks) return;
  End("%zu communicators are left at exit, one of them %s; destroy or abort each", left.size(),
      left.front()->Describe().c_str());
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> AllCommunicators() {
  std::lock_guard<std::mutex> lock(all_mu);
  return All();
}

void Enlist(const std::shared_ptr<Communicator>& communicator) {
  // Not std::call_once, which has thread-local variables in libstdc++, where -ftls-model of this library
  // would be wrong: a program may open that late.
  [[maybe_unused]] static const bool tells = std::atexit(TellOfLeaks) == 0;
  std::lock_guard<std::mutex> lock(all_mu);
  All().push_back(communicator);
}

void Retire(const std::shared_ptr<Communicator>& communicator, bool aborted) {
  communicator->FreeMemory();
  {
    std::lock_guard<std::mutex> lock(all_mu);
    All().erase(std::remove(All().begin(), All().end(), communicator), All().end());
  }
  if (communicator->board == nullptr) return;
  std::lock_guard<Board> lock(*communicator->board);
  Member& member = communicator->member(communicator->rank);
  (aborted ? member.aborted : member.left) = true;
}

}  // namespace pretend_gpu::nccl
