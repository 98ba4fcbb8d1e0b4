#include "kernels/collectives/backends/nccl/nccl_communicator.h"

#include <chrono>
#include <string>
#include <thread>

#include "kernels/common/thread.h"

namespace tf_smddp::nccl {
namespace {

using Function = NcclCall::Function;

constexpr std::size_t kMostScaledSums = 32;

const char* NameOf(Function function) {
  switch (function) {
    case Function::kAllReduce:
      return "ncclAllReduce";
    case Function::kReduce:
      return "ncclReduce";
    case Function::kBroadcast:
      return "ncclBroadcast";
    case Function::kAllGather:
      return "ncclAllGather";
    case Function::kReduceScatter:
      return "ncclReduceScatter";
    case Function::kSend:
      return "ncclSend";
    case Function::kReceive:
      return "ncclRecv";
  }
  return "";
}

}  // namespace

Status Communicator::Make(const Place& place, const UniqueId& id, int num_ranks, int rank,
                          std::unique_ptr<Communicator>* made) {
  std::unique_ptr<Communicator> making(new Communicator(place));
  const cuda::CurrentContext current(place.driver, place.context);
  Config config;
  Handle handle = nullptr;
  const Result result = place.library->CommInitRankConfig(&handle, num_ranks, id, rank, &config);
  making->handle_ = handle;
  Status status = making->Note("ncclCommInitRankConfig", result);
  if (!status.ok()) return status;
  if (Communicators* const communicators = place.communicators.get()) {
    std::lock_guard<std::mutex> lock(communicators->mu_);
    communicators->all_.insert(making.get());
  }
  *made = std::move(making);
  return status;
}

Communicator::~Communicator() {
  if (Communicators* const communicators = place_.communicators.get()) {
    std::lock_guard<std::mutex> lock(communicators->mu_);
    communicators->all_.erase(this);
  }
  if (ending_.joinable()) ending_.join();
  if (handle_ != nullptr) Abort();
}

// Whether something may begin.
Status Communicator::Begin() const {
  if (handle_ == nullptr) return Internal("the communicator of NCCL was aborted");
  if (in_progress_) return Internal("the communicator of NCCL is still busy with the last call");
  return {};
}

Status Communicator::Note(const char* call, Result result) {
  in_progress_ = result == kInProgress;
  return place_.library->Check(call, result);
}

Status Communicator::Poll(bool* ready) {
  *ready = false;
  const cuda::CurrentContext current(place_.driver, place_.context);
  std::lock_guard<std::mutex> lock(mu_);
  if (handle_ == nullptr) return Internal("the communicator of NCCL was aborted");
  Result state = kSuccess;
  Status status =
      place_.library->Check("ncclCommGetAsyncError", place_.library->CommGetAsyncError(handle_, &state));
  if (status.ok()) status = Note("a call that NCCL had begun", state);
  *ready = status.ok() && !in_progress_;
  return status;
}

// The first calls of a kind connect the ranks, and take longer than the limit; that is no error.
Status Communicator::AwaitLaunch() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  for (;;) {
    const bool last = std::chrono::steady_clock::now() >= limit;
    bool ready = false;
    Status status = Poll(&ready);
    if (!status.ok() || ready || last) return status;
    std::this_thread::yield();  // NCCL's thread may need this core
  }
}

// A program has few factors, or one that changes all the time.
Status Communicator::ForgetScaledSums() {
  Status status;
  for (const auto& entry : scaled_sums_) {
    const Result result = place_.library->RedOpDestroy(entry.second, handle_);
    if (status.ok()) status = place_.library->Check("ncclRedOpDestroy", result);
  }
  scaled_sums_.clear();
  return status;
}

Status Communicator::OpOf(const NcclCall& call, Op* op) {
  *op = call.op;
  if (!call.scaled) return {};
  const auto [known, is_new] = scaled_sums_.try_emplace({call.type, call.scalar});
  if (is_new) {
    std::uint64_t scalar = call.scalar;
    const Result result =
        place_.library->RedOpCreatePreMulSum(&known->second, &scalar, call.type, kScalarOnHost, handle_);
    const Status status = place_.library->Check("ncclRedOpCreatePreMulSum", result);
    if (!status.ok()) {
      scaled_sums_.erase(known);
      return status;
    }
  }
  *op = known->second;
  return {};
}

Status Communicator::Put(const NcclCall& call, cuda::Stream stream) {
  const Library& nccl = *place_.library;
  Op op = kSum;
  const Status status = OpOf(call, &op);
  if (!status.ok()) return status;
  const auto& [function, send, receive, count, type, compressed, peer, plain_op, scaled, scalar] = call;
  const auto result = [&]() -> Result {
    switch (function) {
      case Function::kAllReduce:
        return nccl.AllReduce(send, receive, count, type, op, handle_, stream);
      case Function::kReduce:
        return nccl.Reduce(send, receive, count, type, op, peer, handle_, stream);
      case Function::kBroadcast:
        return nccl.Broadcast(send, receive, count, type, peer, handle_, stream);
      case Function::kAllGather:
        return nccl.AllGather(send, receive, count, type, handle_, stream);
      case Function::kReduceScatter:
        return nccl.ReduceScatter(send, receive, count, type, op, handle_, stream);
      case Function::kSend:
        return nccl.Send(send, count, type, peer, handle_, stream);
      case Function::kReceive:
        return nccl.Recv(receive, count, type, peer, handle_, stream);
    }
    return kSuccess;
  };
  return nccl.Check(NameOf(function), result());
}

Status Communicator::Enqueue(const std::vector<NcclCall>& calls, cuda::Stream stream) {
  const cuda::CurrentContext current(place_.driver, place_.context);
  std::lock_guard<std::mutex> lock(mu_);
  Status status = Begin();
  if (!status.ok() || calls.empty()) return status;
  if (scaled_sums_.size() > kMostScaledSums) status = ForgetScaledSums();
  if (!status.ok()) return status;
  // NCCL takes no new ops while calls are under way, so they are made before the group.
  for (const NcclCall& call : calls) {
    Op op = kSum;
    status = OpOf(call, &op);
    if (!status.ok()) return status;
  }
  status = place_.library->Check("ncclGroupStart", place_.library->GroupStart());
  if (!status.ok()) return status;
  for (const NcclCall& call : calls) {
    if (status.ok()) status = Put(call, stream);
    // Note [The end of all]: nothing is there any more.
    if (handle_ == nullptr) return Begin();
  }
  // The group ends in any case, or this thread's next calls would belong to it.
  const Status ended = Note("ncclGroupEnd", place_.library->GroupEnd());
  return status.ok() ? ended : status;
}

// NCCL finds its device by itself.
void Communicator::Abort() {
  std::lock_guard<std::mutex> aborting(aborting_);
  std::unique_lock<std::mutex> lock(mu_, std::try_to_lock);
  const auto end = std::chrono::steady_clock::now() + kLongestCall;
  while (!lock.owns_lock() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<void>(lock.try_lock());
  }
  const Handle aborted = handle_.exchange(nullptr);
  if (lock.owns_lock()) lock.unlock();
  // There is nothing to be done about errors of an abort.
  if (aborted != nullptr) static_cast<void>(place_.library->CommAbort(aborted));
}

void Communicators::AbortAll() {
  std::lock_guard<std::mutex> lock(mu_);
  for (Communicator* const each : all_) {
    if (each->ending_.joinable() || each->handle_ == nullptr) continue;
    const auto abort = [each, delay = delay_] {
      std::this_thread::sleep_for(delay);
      each->Abort();
    };
    try {
      each->ending_ = StartThread("smddp-abort", abort);
    } catch (const ThreadRefused&) {
      return;  // the next call may get one
    }
  }
}

}  // namespace tf_smddp::nccl
