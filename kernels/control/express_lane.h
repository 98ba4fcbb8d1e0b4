// ExpressLane: where the members of a communicator meet that come at the same time, and see what each brings.
//
// Place in the stack: in the communicator's segment, above abort_record.h. Not here: what they meet about,
// and what becomes of those who don't meet (kernels/engine/express.h).
//
// The readiness table takes any requests in any order, and a member may be asleep meanwhile; a meeting there
// takes a dozen cache lines from core to core. Here a member *posts* one request at a time, its data beside
// it, in a line of its own that nobody else writes to, and looks at the others' lines. All see whether all
// have posted the same, and then each reads everybody's data. One who does not want to wait any longer
// *withdraws* its post, and so does everyone else then.
//
// A member has two posts, for meetings of even and of odd number. Who has posted for meeting n + 1 has read
// everything of meeting n, so a post for meeting n + 2 overwrites nothing that anyone may still read.
//
// Members that have met may share the work, and write to each other's memory. Then each says when its part is
// done, and waits until all parts are.
//
// Note [All meet or none]: a member may withdraw only if some member has not posted yet. It says so first
// (kLeaving), then looks, and one that posts, posts first and looks then; all sequentially consistent. So
// those who post later see it. Who finds everybody's post looks at all of them once more: had one been
// leaving before the last one posted, it is seen now. So nobody meets without the one that leaves. One that
// was leaving and finds that all have posted has come back, and stays until it is settled: until all are
// found, or one that has withdrawn, whatever it has posted and withdrawn since. Each settles it within a few
// instructions, unless it is stopped there, or dies, which aborts the job. Then, and only then, those who
// stay cannot know: one may have met where another sees the abort, and write to the memory of that one, which
// must stay in place.
#ifndef TF_SMDDP_KERNELS_CONTROL_EXPRESS_LANE_H_
#define TF_SMDDP_KERNELS_CONTROL_EXPRESS_LANE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "kernels/common/config.h"
#include "kernels/control/abort_record.h"

namespace tf_smddp {

// One member's end of it. One thread at a time, all of it.
class ExpressLane {
 public:
  static constexpr std::size_t kMostBytes = 16 << 10;  // of one member's data

  // Bytes that the lane of `num_members` takes.
  static std::size_t Bytes(int num_members);

  // A view of zeroed shared memory at `memory`, aligned to 64, for member `member`. The only one that this
  // member ever makes, since it counts the meetings.
  ExpressLane(std::byte* memory, int num_members, int member, const AbortRecord* abort);

  // Posts `bytes` of `data`, at most kMostBytes, as a part of `what`. Meet must follow.
  void Post(std::uint64_t what, const void* data, std::size_t bytes);

  // Waits for all others to post the same, for about `patience`. False when they don't; then they don't meet
  // either. When true, inputs[m] is what member m has posted, valid until the next Post. False, too, when it
  // takes longer than `limit` to be settled, for members that take their time to say whether they stay: then
  // *behind has their bits, else none, and it is to be called again. *waited is how long it took, to some
  // hundred nanoseconds.
  bool Meet(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, const void** inputs,
            std::uint64_t* behind, std::chrono::nanoseconds* waited);

  // After a Meet that was true, by all members or none: says that this member's part of what they have met
  // for is done, and waits until all parts are. False when the job is aborted before; or when that takes
  // longer than `limit`: then *behind has the bits of members whose part is not done, else none, and it is to
  // be called again. *waited as above.
  bool FinishTogether(std::chrono::nanoseconds limit, std::uint64_t* behind,
                      std::chrono::nanoseconds* waited);

 private:
  static constexpr std::size_t kInlineBytes = 48;

  struct alignas(64) Line {
    std::byte data[kInlineBytes];  // when there are no more bytes; first, so that a vector ends in the line
    std::atomic<std::uint64_t> word;  // see WordOf
    std::atomic<std::uint64_t> what;
  };
  // The last meeting of which a member's part is done.
  struct alignas(64) Finished {
    std::atomic<std::uint64_t> meeting;
  };
  enum class Seen {
    kAll,    // everybody's post
    kSome,   // not all yet
    kNever,  // one has withdrawn, or posted something else
  };

  static std::uint64_t WordOf(std::uint64_t meeting, std::uint64_t post, std::uint64_t state);
  bool HasPosted(int member) const;
  Seen Look() const;
  Seen LookAt(int member, std::uint64_t* word) const;
  std::uint64_t Undecided() const;
  bool Withdraw();
  bool Wait(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, std::uint64_t* behind,
            std::chrono::nanoseconds* waited);
  Line& LineOf(int member) const { return lines_[member * 2 + static_cast<int>(meeting_ % 2)]; }
  std::byte* RoomOf(int member) const;

  Line* const lines_;
  Finished* const finished_;
  std::byte* const rooms_;  // for data of more than kInlineBytes
  const int num_members_;
  const int member_;
  const AbortRecord* const abort_;
  std::uint64_t meeting_ = 0;  // the next one; the same for all members
  std::uint64_t post_ = 0;     // of this member, the last one
  std::uint64_t what_ = 0;     // it is about
  bool in_line_ = true;        // its data is in the line
  bool stays_ = false;         // all had posted: it only remains to be seen whether all stay
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_EXPRESS_LANE_H_
