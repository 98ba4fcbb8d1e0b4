// How calls of several ranks find each other.
//
// The n-th collective of a rank meets the n-th collective of each other rank, and the n-th send to a rank
// meets that rank's n-th receive from the sender; in the order in which the programs make the calls, whatever
// the streams do. First a call is posted. Then its stream comes to it, and it arrives with what it sends. It
// has met the others when they have arrived, too.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_MEETING_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_MEETING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/operation.h"

namespace pretend_gpu::nccl {

// A call's place in a meeting.
struct Seat {
  int lane;
  int party;
  int parties;
  std::uint64_t number;
};

// All functions: any thread, without the lock of the board.

// Makes the call known. Ends the process if it does not agree with that of another party.
Seat Post(Communicator& communicator, const Operation& operation, std::uint64_t issue, std::uint64_t stream);

// Says that the call's stream has come to it. Whoever waits is woken by a ring of the board.
void Arrive(Communicator& communicator, const Seat& seat, std::uint64_t offset, std::uint64_t bytes);

// Waits until all parties of all seats have arrived; returns false if the communicator was aborted before, or
// the one that is split off it. Ends the process if another rank has done so, or at the time limit.
bool Meet(Communicator& communicator, const std::vector<Seat>& seats, const Communicator* child = nullptr);

// Returns whether some party of these seats has waited so long that this rank's lazy stream should go on.
bool IsWanted(Communicator& communicator, const std::vector<Seat>& seats);

// Returns where the parties' data lie in their outboxes. Only after Meet.
// With PRETEND_GPU_NCCL_SPOIL: returns whether another party has ended its communicator, whose memory this
// rank is about to read.
bool IsSpoiled(Communicator& communicator, const std::vector<Seat>& seats);

std::vector<std::uint64_t> OffsetsOf(Communicator& communicator, const Seat& seat);

// Says that this rank has taken all that it needs, or will not take it. The last rank to say so empties the
// outboxes.
void Leave(Communicator& communicator, const std::vector<Seat>& seats, bool met);

// Returns the rank of a party.
int RankOf(int lane, int party);

// Returns "collective 3 of communicator 3f2a", or "send 3 from rank 0 to rank 1 in communicator 3f2a".
std::string Describe(const Board& board, int lane, std::uint64_t number);

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_MEETING_H_
