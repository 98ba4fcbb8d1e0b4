#include "tests/pretend_gpu/nccl/patience.h"

#include <unistd.h>

#include <cstdio>

#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/verdict.h"
#include "tests/pretend_gpu/other_process.h"

namespace pretend_gpu::nccl {

Patience::Patience(Communicator& communicator, const std::vector<Seat>& seats)
    : communicator_(communicator), seats_(seats) {}

Patience::~Patience() {
  if (told_) Tell("");
}

void Patience::Check(std::unique_lock<Board>* lock) {
  constexpr std::chrono::milliseconds kLong(100);
  if (IsOverdue(begin_)) {
    EndAll(lock, "rank " + std::to_string(communicator_.rank) + " has waited for " +
                     std::to_string(GetSettings().limit_s) + " s (PRETEND_GPU_NCCL_LIMIT_S)" + Missing());
  }
  if (told_ || std::chrono::steady_clock::now() - begin_ < kLong) return;
  told_ = true;
  std::string text;
  for (const Seat& seat : seats_) {
    const Entry& entry = communicator_.board->EntryOf(seat.lane, seat.party, seat.number);
    text = Describe(entry.operation) + ", " + Describe(*communicator_.board, seat.lane, seat.number);
  }
  lock->unlock();
  Tell(text);
  lock->lock();
}

void Patience::Tell(const std::string& text) {
  for (const auto& other : AllCommunicators()) {
    if (other->device != communicator_.device || other->board == nullptr) continue;
    std::lock_guard<Board> lock(*other->board);
    auto& waits_in = other->member(other->rank).waits_in;
    std::snprintf(waits_in, sizeof(waits_in), "%s", text.c_str());
  }
}

std::string Patience::Missing() {
  Board& board = *communicator_.board;
  std::string text;
  for (const Seat& seat : seats_) {
    const Entry& ours = board.EntryOf(seat.lane, seat.party, seat.number);
    for (int party = 0; party < seat.parties; party++) {
      const Entry* entry = board.Find(seat.lane, party, seat.number);
      if (entry != nullptr && (entry->state == State::kArrived || entry->state == State::kFinished)) continue;
      const int rank = RankOf(seat.lane, party);
      text += ": in " + Describe(ours.operation) + ", " + Describe(board, seat.lane, seat.number) +
              ", rank " + std::to_string(rank);
      if (entry == nullptr) {
        text += " has not made its call";
        const std::uint64_t last = board.data().lanes[seat.lane].posted[party];
        if (last == 0) text += ", nor one before";
        if (last != 0) {
          text += "; its last one was number " + std::to_string(last) + ", " +
                  Describe(board.EntryOf(seat.lane, party, last).operation);
        }
      } else {
        text += entry->state == State::kWithdrawn ? " has aborted its communicator"
                                                  : " has made its call, but its stream has not come to it";
      }
      text += Condition(board.data().members[rank]);
    }
  }
  return text;
}

std::string Condition(const Member& member) {
  std::string text;
  if (member.failed) text += "; it has failed";
  if (member.aborted) text += "; it has aborted its communicator";
  if (member.left) text += "; it has destroyed its communicator";
  if (member.process != getpid() && !IsAlive(member.process)) {
    text += "; its process " + std::to_string(member.process) + " has ended";
  } else {
    if (member.grouped > 0) {
      text += "; it has " + std::to_string(member.grouped) + " calls in a group that it has not ended";
    }
    if (member.waits_in[0] != '\0') text += std::string("; it waits in ") + member.waits_in;
  }
  return text;
}

bool IsOverdue(std::chrono::steady_clock::time_point begin) {
  const long limit_s = GetSettings().limit_s;
  return limit_s > 0 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(limit_s);
}

}  // namespace pretend_gpu::nccl
