#include "tests/pretend_gpu/nccl/making.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/last_error.h"
#include "tests/pretend_gpu/nccl/patience.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/verdict.h"
#include "tests/pretend_gpu/other_process.h"

namespace pretend_gpu::nccl {
namespace {

// Returns which ranks have not joined, as " rank 1 rank 3".
std::string Absent(const BoardData& data, int ranks) {
  std::string text;
  for (int i = 0; i < ranks; i++) {
    if (data.members[i].process == 0) text += " rank " + std::to_string(i);
  }
  return text;
}

// Returns a text if two ranks have one GPU, which NCCL refuses.
std::string SharedDevice(const BoardData& data, int ranks) {
  if (GetSettings().ranks_share) return "";
  for (int i = 0; i < ranks; i++) {
    for (int j = 0; j < i; j++) {
      const Member &a = data.members[i], &b = data.members[j];
      if (a.host != b.host || a.device != b.device) continue;
      return "ranks " + std::to_string(j) + " and " + std::to_string(i) + " both use device " +
             std::to_string(a.device) + "; give each rank a device of its own";
    }
  }
  return "";
}

}  // namespace

MakingByBoard::MakingByBoard(std::shared_ptr<Communicator> communicator, std::shared_ptr<Board> board,
                             int rank, int ranks, ncclComm_t* handle)
    : communicator_(std::move(communicator)),
      board_(std::move(board)),
      rank_(rank),
      ranks_(ranks),
      handle_(handle) {}

ncclResult_t MakingByBoard::Join() {
  communicator_->Attach(board_, rank_, ranks_);
  Enlist(communicator_);
  const ncclResult_t error = communicator_->TakeMemory(GetSettings().memory_bytes);
  if (error != ncclSuccess) return error;
  auto& outbox = communicator_->outboxes[rank_];
  outbox = Outbox::Make();
  std::unique_lock<Board> lock(*board_);
  ObeyVerdict(&lock);
  Member& ours = communicator_->member(rank_);
  if (ours.process != 0) {
    EndAll(&lock, "rank " + std::to_string(rank_) + " joins " + board_->name() +
                      ", and has joined before, in process " + std::to_string(ours.process) +
                      "; give each rank a number of its own, and each communicator a unique id of its own");
  }
  for (int i = 0; i < kMostRanks; i++) {
    const Member& other = communicator_->member(i);
    if (other.process == 0 || other.ranks == ranks_) continue;
    EndAll(&lock, "rank " + std::to_string(rank_) + " joins " + board_->name() + " with " +
                      std::to_string(ranks_) + " ranks, and rank " + std::to_string(i) + " with " +
                      std::to_string(other.ranks) + "; all ranks must say the same number");
  }
  ours.device = communicator_->device;
  ours.ranks = ranks_;
  ours.host = std::hash<std::string>()(GetSettings().host);
  ours.outbox = outbox->place();
  ours.process = getpid();
  lock.unlock();
  board_->Ring();
  return ncclSuccess;
}

ncclResult_t MakingByBoard::Await() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock<Board> lock(*board_);
  for (;;) {
    ObeyVerdict(&lock);
    if (communicator_->aborted()) return ncclInternalError;
    const std::string absent = Absent(board_->data(), ranks_);
    if (absent.empty()) break;
    for (int i = 0; i < ranks_; i++) {
      const std::int32_t process = communicator_->member(i).process;
      if (process == 0 || IsAlive(process)) continue;
      return Refuse(ncclRemoteError, communicator_->Describe() + ": rank " + std::to_string(i) +
                                         ", process " + std::to_string(process) +
                                         ", has ended before all ranks had joined");
    }
    CheckLimit(begin, &lock, absent);
    board_->AwaitChange(lock, std::chrono::milliseconds(50));
  }
  if (const std::string text = SharedDevice(board_->data(), ranks_); !text.empty()) {
    return Refuse(ncclInvalidUsage, communicator_->Describe() + ": " + text);
  }
  for (int i = 0; i < ranks_; i++) {
    if (i == rank_) continue;
    auto& outbox = communicator_->outboxes[i];
    outbox = Outbox::Open(communicator_->member(i).outbox);
    if (outbox != nullptr) continue;
    return Refuse(ncclRemoteError,
                  communicator_->Describe() + ": rank " + std::to_string(i) + " has ended too early");
  }
  communicator_->member(rank_).ready = true;
  lock.unlock();
  board_->Ring();
  return ncclSuccess;
}

ncclResult_t MakingByBoard::AwaitOthers() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock<Board> lock(*board_);
  for (;;) {
    ObeyVerdict(&lock);
    if (communicator_->aborted()) return ncclInternalError;
    std::string missing;
    for (int i = 0; i < ranks_; i++) {
      const Member& other = communicator_->member(i);
      if (!other.ready) missing += " rank " + std::to_string(i);
      if (other.ready || IsAlive(other.process)) continue;
      return Refuse(ncclRemoteError,
                    communicator_->Describe() + ": rank " + std::to_string(i) + " has ended too early");
    }
    if (missing.empty()) return ncclSuccess;
    CheckLimit(begin, &lock, missing);
    board_->AwaitChange(lock, std::chrono::milliseconds(50));
  }
}

void MakingByBoard::CheckLimit(std::chrono::steady_clock::time_point begin, std::unique_lock<Board>* lock,
                               const std::string& missing) {
  if (!IsOverdue(begin)) return;
  EndAll(lock, "rank " + std::to_string(rank_) + " has waited for " + std::to_string(GetSettings().limit_s) +
                   " s (PRETEND_GPU_NCCL_LIMIT_S) for all ranks to join " + board_->name() +
                   "; these have not called ncclCommInitRank, or have given up:" + missing);
}

void MakingByBoard::Undo() {
  Retire(communicator_, true);
  if (handle_ == nullptr || *handle_ == nullptr) return;
  Communicators().Remove(*handle_);
  *handle_ = nullptr;
}

bool AllAreReady(Board& board) {
  std::lock_guard<Board> lock(board);
  const auto& members = board.data().members;
  const auto first =
      std::find_if(members.begin(), members.end(), [](const Member& m) { return m.ranks > 0; });
  return first != members.end() && std::all_of(members.begin(), members.begin() + first->ranks,
                                               [](const Member& m) { return m.ready; });
}

ncclResult_t Make(const std::vector<std::unique_ptr<Making>>& makings) {
  ncclResult_t error = ncclSuccess;
  const auto all = [&](ncclResult_t (Making::*phase)()) {
    for (const auto& making : makings) {
      const ncclResult_t result = error == ncclSuccess ? (making.get()->*phase)() : error;
      if (error == ncclSuccess) error = result;
    }
  };
  all(&Making::Begin);
  all(&Making::Join);
  all(&Making::Await);
  all(&Making::AwaitOthers);
  if (error != ncclSuccess) {
    for (const auto& making : makings) making->Undo();
  }
  return error;
}

}  // namespace pretend_gpu::nccl
