// The shared memory of one communicator, in which its ranks say what they do.
//
// A lane is a sequence of meetings: lane 0 has the collectives, which all ranks take part in, and there is a
// lane for the sends of each rank to each other one. Who takes part is a party. The n-th call of each party
// in a lane meets in the n-th meeting; each party has an entry there. Entries are used again after kWindow
// meetings.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_BOARD_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_BOARD_H_

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tests/pretend_gpu/nccl/operation.h"
#include "tests/pretend_gpu/nccl/shared_file.h"

namespace pretend_gpu::nccl {

inline constexpr int kMostRanks = 16;
inline constexpr int kCollectives = 0;  // the lane
inline constexpr int kLanes = 1 + kMostRanks * kMostRanks;
inline constexpr std::uint64_t kWindow = 8192;

inline int LaneOf(int sender, int receiver) { return 1 + sender * kMostRanks + receiver; }

enum class State : std::int32_t {
  kPosted = 1,  // the program has made the call
  kArrived,     // its stream has come to it, and what it sends is in the outbox
  kFinished,    // it has met the others, and has what they sent
  kWithdrawn,   // its communicator was aborted before that
};

struct Entry {
  std::uint64_t number;  // of the meeting, counted from 1; 0: none yet
  Operation operation;
  State state;
  std::uint64_t issue;   // the how-manieth launch of its process this is: order.h
  std::uint64_t stream;  // the stream's id
  std::uint64_t arrived_us;
  std::uint64_t offset, bytes;  // in its outbox
};

struct Member {
  std::int32_t process;  // 0: has not joined
  std::int32_t device;
  std::int32_t ranks;  // how many it says that there are
  std::uint64_t host;  // a checksum
  Place outbox;
  bool ready;            // has seen that all have joined
  bool left;             // has destroyed its communicator
  bool aborted;          // or aborted it
  bool failed;           // one of its calls has failed
  std::int32_t grouped;  // calls in a group that it has not ended
  char waits_in[200];    // the call in which it waits for long, in whichever communicator
};

struct Lane {
  std::array<std::uint64_t, kMostRanks> posted;  // how many calls each party has made
};

// Zero at first, but for the mutex.
struct BoardData {
  pthread_mutex_t mutex;
  std::atomic<std::uint32_t> bell;
  std::uint64_t id;
  char verdict[600];  // the sentence with which a rank has ended, for the others; empty: none
  std::array<Member, kMostRanks> members;
  std::array<Lane, kLanes> lanes;
  std::array<Entry, kWindow * kMostRanks> collectives;
  std::array<Entry, kWindow * kMostRanks * kMostRanks * 2> pairs;
};

// lock() and unlock() make it a mutex for std::unique_lock; a process that dies with it does not keep it.
// It guards data(), but for the bell. All methods: any thread.
class Board {
 public:
  static std::shared_ptr<Board> Make();

  // Returns nullptr if the process that made it has ended. A process maps each board once.
  static std::shared_ptr<Board> Open(const Place& place);

  ~Board();

  void lock();
  void unlock();

  // Wakes all that wait for a change. The lock need not be held.
  void Ring();

  // Waits for a change, at most for the limit. It may return for no reason.
  void AwaitChange(std::unique_lock<Board>& lock, std::chrono::milliseconds limit);

  // The entry of the meeting `number`, counted from 1, or of the one that had it before.
  Entry& EntryOf(int lane, int party, std::uint64_t number);

  // The entry, or nullptr if the party has not made the call.
  Entry* Find(int lane, int party, std::uint64_t number);

  BoardData& data() { return *data_; }
  const Place& place() const { return place_; }

  // Returns "communicator 3f2a".
  std::string name() const { return name_; }

 private:
  Board(std::unique_ptr<SharedFile> file, const Place& place, BoardData* data);
  static std::shared_ptr<Board> Keep(std::unique_ptr<SharedFile> file, const Place& place, bool fresh);

  const std::unique_ptr<SharedFile> file_;
  const Place place_;  // in the process that made it
  BoardData* const data_;
  const std::string name_;
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_BOARD_H_
