#include "tests/pretend_gpu/nccl/meeting.h"

#include <algorithm>
#include <chrono>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/patience.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/verdict.h"
#include "tests/pretend_gpu/point.h"

namespace pretend_gpu::nccl {
namespace {

std::uint64_t NowUs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

Seat SeatOf(const Communicator& communicator, const Operation& operation) {
  switch (operation.kind) {
    case Kind::kSend:
      return {LaneOf(communicator.rank, operation.peer), 0, 2, 0};
    case Kind::kReceive:
      return {LaneOf(operation.peer, communicator.rank), 1, 2, 0};
    default:
      return {kCollectives, communicator.rank, communicator.ranks, 0};
  }
}

// Returns whether all parties have done with the meeting. The lock is held.
bool IsOver(Board& board, const Seat& seat, std::uint64_t number) {
  for (int party = 0; party < seat.parties; party++) {
    const Entry& entry = board.EntryOf(seat.lane, party, number);
    const bool done = entry.state == State::kFinished || entry.state == State::kWithdrawn;
    if (entry.number < number || (entry.number == number && !done)) return false;
  }
  return true;
}

bool HasArrived(const Entry* entry) {
  return entry != nullptr && (entry->state == State::kArrived || entry->state == State::kFinished);
}

// The lock is held.
bool HaveAllArrived(Board& board, const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) {
    for (int party = 0; party < seat.parties; party++) {
      if (!HasArrived(board.Find(seat.lane, party, seat.number))) return false;
    }
  }
  return true;
}

// The lock is held.
bool HaveOthersEnded(Communicator& communicator, const std::vector<Seat>& seats) {
  if (!GetSettings().spoils) return false;
  for (const Seat& seat : seats) {
    for (int party = 0; party < seat.parties; party++) {
      const Member& other = communicator.board->data().members[RankOf(seat.lane, party)];
      if (party != seat.party && (other.aborted || other.left)) return true;
    }
  }
  return false;
}

}  // namespace

int RankOf(int lane, int party) {
  if (lane == kCollectives) return party;
  return party == 0 ? (lane - 1) / kMostRanks : (lane - 1) % kMostRanks;
}

std::string Describe(const Board& board, int lane, std::uint64_t number) {
  const std::string n = std::to_string(number);
  if (lane == kCollectives) return "collective " + n + " of " + board.name();
  return "send " + n + " from rank " + std::to_string(RankOf(lane, 0)) + " to rank " +
         std::to_string(RankOf(lane, 1)) + " in " + board.name();
}

Seat Post(Communicator& communicator, const Operation& operation, std::uint64_t issue, std::uint64_t stream) {
  Board& board = *communicator.board;
  Seat seat = SeatOf(communicator, operation);
  std::unique_lock<Board> lock(board);
  ObeyVerdict(&lock);
  std::uint64_t& posted = board.data().lanes[seat.lane].posted[seat.party];
  seat.number = posted + 1;
  Entry& entry = board.EntryOf(seat.lane, seat.party, seat.number);
  if (seat.number > kWindow && !IsOver(board, seat, seat.number - kWindow)) {
    EndAll(&lock, "rank " + std::to_string(communicator.rank) + " makes " +
                      Describe(board, seat.lane, seat.number) + " while that " + std::to_string(kWindow) +
                      " before is not done on all ranks; wait for a stream now and then");
  }
  entry = {seat.number, operation, State::kPosted, issue, stream, 0, 0, 0};
  posted = seat.number;
  for (int party = 0; party < seat.parties; party++) {
    const Entry* other = board.Find(seat.lane, party, seat.number);
    if (other == nullptr || party == seat.party || Agree(operation, other->operation)) continue;
    EndAll(&lock, "rank " + std::to_string(communicator.rank) + " calls " + Describe(operation) + " as " +
                      Describe(board, seat.lane, seat.number) + ", and rank " +
                      std::to_string(RankOf(seat.lane, party)) + " calls " + Describe(other->operation) +
                      "; ranks that meet must make the same call, with the same count, type, op and root");
  }
  return seat;
}

void Arrive(Communicator& communicator, const Seat& seat, std::uint64_t offset, std::uint64_t bytes) {
  std::lock_guard<Board> lock(*communicator.board);
  Entry& entry = communicator.board->EntryOf(seat.lane, seat.party, seat.number);
  entry.state = State::kArrived;
  entry.arrived_us = NowUs();
  entry.offset = offset;
  entry.bytes = bytes;
}

bool Meet(Communicator& communicator, const std::vector<Seat>& seats, const Communicator* child) {
  Board& board = *communicator.board;
  const auto met = [&] {
    return !communicator.failed() && (HaveAllArrived(board, seats) || HaveOthersEnded(communicator, seats));
  };
  {
    std::unique_lock<Board> lock(board);
    if (met()) return true;
  }
  const BlockedScope blocked;
  Patience patience(communicator, seats);
  std::unique_lock<Board> lock(board);
  while (!communicator.aborted() && (child == nullptr || !child->aborted())) {
    ObeyVerdict(&lock);
    if (met()) return true;
    patience.Check(&lock);
    board.AwaitChange(lock, std::chrono::milliseconds(50));
  }
  return false;
}

bool IsWanted(Communicator& communicator, const std::vector<Seat>& seats) {
  const auto patience_us = static_cast<std::uint64_t>(GetSettings().peers_us);
  const std::uint64_t now_us = NowUs();
  std::lock_guard<Board> lock(*communicator.board);
  return std::any_of(seats.begin(), seats.end(), [&](const Seat& seat) {
    for (int party = 0; party < seat.parties; party++) {
      const Entry* entry = communicator.board->Find(seat.lane, party, seat.number);
      if (entry != nullptr && entry->state == State::kArrived && now_us > entry->arrived_us + patience_us) {
        return true;
      }
    }
    return false;
  });
}

bool IsSpoiled(Communicator& communicator, const std::vector<Seat>& seats) {
  std::lock_guard<Board> lock(*communicator.board);
  return HaveOthersEnded(communicator, seats);
}

std::vector<std::uint64_t> OffsetsOf(Communicator& communicator, const Seat& seat) {
  std::vector<std::uint64_t> offsets;
  std::lock_guard<Board> lock(*communicator.board);
  for (int party = 0; party < seat.parties; party++) {
    offsets.push_back(communicator.board->EntryOf(seat.lane, party, seat.number).offset);
  }
  return offsets;
}

void Leave(Communicator& communicator, const std::vector<Seat>& seats, bool met) {
  Board& board = *communicator.board;
  std::vector<std::pair<int, Entry>> over;
  {
    std::lock_guard<Board> lock(board);
    for (const Seat& seat : seats) {
      board.EntryOf(seat.lane, seat.party, seat.number).state = met ? State::kFinished : State::kWithdrawn;
      if (!IsOver(board, seat, seat.number)) continue;
      for (int party = 0; party < seat.parties; party++) {
        over.emplace_back(RankOf(seat.lane, party), board.EntryOf(seat.lane, party, seat.number));
      }
    }
  }
  for (const auto& [rank, entry] : over) communicator.outboxes[rank]->Forget(entry.offset, entry.bytes);
}

}  // namespace pretend_gpu::nccl
