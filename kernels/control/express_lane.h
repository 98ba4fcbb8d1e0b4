// ExpressLane: lets the members of a communicator exchange a request directly, if all of them submit it at
// about the same time.
//
// Place in the stack: in the communicator's segment, above abort_record.h. kernels/engine/express.h decides
// which requests try the lane; those that do not meet there go through the readiness table.
//
// The readiness table accepts requests in any order, from members that may be asleep, and pays for it: about
// a dozen cache lines move between cores for each request. In the lane, each member writes one cache line,
// which nobody else writes to, and reads the lines of the others:
//
//   1. A member *posts* a request: it writes the request's key and data to its line, in the state kPosted.
//   2. It reads the other lines until every member has posted the same key. The members have then *met*, and
//      each reads the data of all.
//   3. A member whose patience has ended tries to *withdraw* its post. It first sets its state to kLeaving,
//      then reads the other lines once more. If some member has not posted, it sets kWithdrawn, and no member
//      meets. If all have posted, it returns to kPosted and stays.
//
// Meetings are numbered; the number advances when the members meet. A member has two lines, for even and odd
// numbers. A member that posts for meeting n + 1 has read all data of meeting n, so a post for meeting n + 2
// overwrites nothing that is still being read.
//
// Note [All meet or none]:
//   1. A leaving member writes kLeaving first and reads the other lines second. A posting member writes
//      kPosted first and reads second. All of this is sequentially consistent, so a member that posts too
//      late for the leaving one to see reads kLeaving or kWithdrawn there.
//   2. A member that has found every other line in kPosted reads all lines a second time, and has met only if
//      none has changed. A member that was leaving before the last one posted is seen by that second read. So
//      no member meets without one that leaves.
//   3. A leaving member that has found all posts stays until the outcome is certain: until it has met, or
//      reads that another member has withdrawn, even if that member has posted and withdrawn something else
//      since.
//   4. A leaving member decides within a few instructions, unless the system stops it there or its process
//      dies. A death aborts the job; only then may members disagree: one may have met where another sees the
//      abort.
#ifndef TF_SMDDP_KERNELS_CONTROL_EXPRESS_LANE_H_
#define TF_SMDDP_KERNELS_CONTROL_EXPRESS_LANE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "kernels/common/config.h"
#include "kernels/control/abort_record.h"

namespace tf_smddp {

// One member's access to the lane. Not thread-safe: one thread at a time may call its methods.
class ExpressLane {
 public:
  static constexpr std::size_t kMostBytes = 16 << 10;  // the limit for one member's data

  // Returns the bytes that the lane of `num_members` members takes.
  static std::size_t Bytes(int num_members);

  // Creates a view of zeroed shared memory at `memory`, aligned to 64 bytes, for member `member`. Each member
  // creates one view and keeps it, because the view counts the meetings.
  ExpressLane(std::byte* memory, int num_members, int member, const AbortRecord* abort);

  // Posts `bytes` bytes of `data`, at most kMostBytes, under `key`, which is equal for equal requests. Meet
  // must follow.
  void Post(std::uint64_t key, const void* data, std::size_t bytes);

  // Waits for about `patience` until all other members have posted the same key, and then tries to withdraw.
  //   true: the members have met. inputs[m] is the data of member m, valid until the next Post.
  //   false with *late == 0: no member meets, or the job was aborted.
  //   false with *late != 0: the members in this mask have not decided within `limit` whether they stay. The
  //     caller must call Meet again.
  // Sets *waited to the time that this call has waited, within some hundred nanoseconds.
  bool Meet(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, const void** inputs,
            std::uint64_t* late, std::chrono::nanoseconds* waited);

 private:
  static constexpr std::size_t kInlineBytes = 48;

  struct alignas(64) Line {
    // Data of at most kInlineBytes. It comes first, so that vector loads stay within the line.
    std::byte data[kInlineBytes];
    std::atomic<std::uint64_t> word;  // see WordOf
    std::atomic<std::uint64_t> key;
  };
  // The result of reading one line, or all lines.
  enum class Seen {
    kPosted,       // the same key is posted
    kUndecided,    // not posted yet, or leaving
    kWillNotMeet,  // withdrawn, or another key is posted
  };

  static std::uint64_t WordOf(std::uint64_t meeting, std::uint64_t post, std::uint64_t state);
  bool HasPosted(int member) const;
  Seen ReadLines() const;
  Seen ReadLine(int member, std::uint64_t* word) const;
  std::uint64_t Undecided() const;
  bool Withdraw();
  bool Wait(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, std::uint64_t* late,
            std::chrono::nanoseconds* waited);
  Line& LineOf(int member) const { return lines_[member * 2 + static_cast<int>(meeting_ % 2)]; }
  std::byte* BufferOf(int member) const;

  Line* const lines_;
  std::byte* const buffers_;  // for data of more than kInlineBytes
  const int num_members_;
  const int member_;
  const AbortRecord* const abort_;
  std::uint64_t meeting_ = 0;  // number of the next meeting; the same for all members
  std::uint64_t post_ = 0;     // number of this member's last post
  std::uint64_t key_ = 0;      // key of that post
  bool in_line_ = true;        // whether its data is in the line
  bool stays_ = false;         // has found all posts while leaving, and waits until the outcome is certain
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_EXPRESS_LANE_H_
