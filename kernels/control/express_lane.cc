#include "kernels/control/express_lane.h"

#include <sched.h>

#include <cstring>

#include "kernels/common/clock.h"
#include "kernels/common/rank_mask.h"

namespace tf_smddp {
namespace {

// A line's word is | meeting: 42 bits | post: 20 bits | state: 2 bits |. So two posts for one meeting differ,
// and a post is never taken for one of the meeting two before. Both counts may wrap.
constexpr int kStateBits = 2, kPostBits = 20;
constexpr std::uint64_t kWithdrawn = 0, kPosted = 1, kLeaving = 2;

std::uint64_t MeetingBits(std::uint64_t word) { return word >> (kStateBits + kPostBits); }
std::uint64_t StateOf(std::uint64_t word) { return word & ((std::uint64_t{1} << kStateBits) - 1); }

// The clock is read once for this many polls, because reading it takes longer than a poll.
constexpr unsigned kPollsPerClockRead = 16;

// A member that has waited for this long yields its core, which a late member may need. It does not yield
// earlier, because the thread that gets the core may keep it for milliseconds.
constexpr std::chrono::microseconds kYieldAfter{200};

// Measures how long a polling loop has waited.
class PollTimer {
 public:
  // Sets *waited to 0 and keeps it up to date.
  explicit PollTimer(std::chrono::nanoseconds* waited) : waited_(waited) { *waited = {}; }

  // Counts a poll without success. Returns true when it has read the clock and updated *waited.
  bool Tick() {
    if (++polls_ % kPollsPerClockRead != 0) return false;
    const Clock::time_point now = Clock::now();
    if (begin_ == Clock::time_point{}) begin_ = now;
    *waited_ = now - begin_;
    if (*waited_ > kYieldAfter) ::sched_yield();
    return true;
  }

 private:
  std::chrono::nanoseconds* const waited_;
  unsigned polls_ = 0;
  Clock::time_point begin_{};
};

}  // namespace

std::uint64_t ExpressLane::WordOf(std::uint64_t meeting, std::uint64_t post, std::uint64_t state) {
  const std::uint64_t low = post & ((std::uint64_t{1} << kPostBits) - 1);
  return meeting << (kStateBits + kPostBits) | low << kStateBits | state;
}

std::size_t ExpressLane::Bytes(int num_members) {
  return static_cast<std::size_t>(num_members) * 2 * (sizeof(Line) + kMostBytes);
}

ExpressLane::ExpressLane(std::byte* memory, int num_members, int member, const AbortRecord* abort)
    : lines_(reinterpret_cast<Line*>(memory)),
      buffers_(reinterpret_cast<std::byte*>(lines_ + num_members * 2)),
      num_members_(num_members),
      member_(member),
      abort_(abort),
      // Not 0, so that the zeroed words of members that have never posted belong to another meeting.
      meeting_(1) {}

std::byte* ExpressLane::BufferOf(int member) const {
  return buffers_ + (static_cast<std::size_t>(member) * 2 + meeting_ % 2) * kMostBytes;
}

void ExpressLane::Post(std::uint64_t key, const void* data, std::size_t bytes) {
  Line& own = LineOf(member_);
  key_ = key;
  stays_ = false;
  in_line_ = bytes <= kInlineBytes;
  if (bytes > 0) std::memcpy(in_line_ ? own.data : BufferOf(member_), data, bytes);
  own.key.store(key, std::memory_order_release);  // not visible before the withdrawal of an earlier post
  own.word.store(WordOf(meeting_, ++post_, kPosted), std::memory_order_seq_cst);
}

bool ExpressLane::Meet(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, const void** inputs,
                       std::uint64_t* late, std::chrono::nanoseconds* waited) {
  if (!Wait(patience, limit, late, waited)) return false;
  for (int member = 0; member < num_members_; ++member) {
    inputs[member] = in_line_ ? LineOf(member).data : BufferOf(member);
  }
  ++meeting_;
  return true;
}

bool ExpressLane::Wait(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, std::uint64_t* late,
                       std::chrono::nanoseconds* waited) {
  *late = 0;
  PollTimer timer(waited);
  for (;;) {
    const Seen seen = ReadLines();
    if (seen == Seen::kPosted) return true;
    if (seen == Seen::kWillNotMeet) {
      if (Withdraw()) return false;
      continue;
    }
    if (!timer.Tick()) continue;
    if (stays_) {
      ::sched_yield();
      // The usual cause is a member that died while it was leaving.
      if (abort_->raised()) return ReadLines() == Seen::kPosted;
      if (*waited > limit && (*late = Undecided()) != 0) return false;
    } else if (*waited >= patience) {
      if (Withdraw()) return false;
      stays_ = true;
    }
  }
}

ExpressLane::Seen ExpressLane::ReadLines() const {
  std::uint64_t words[kMaxLocalRanks];
  for (const bool again : {false, true}) {
    Seen all = Seen::kPosted;
    for (int member = 0; member < num_members_; ++member) {
      if (member == member_) continue;
      std::uint64_t word;
      const Seen seen = ReadLine(member, &word);
      if (seen == Seen::kWillNotMeet) return seen;
      if (seen == Seen::kUndecided || (again && word != words[member])) all = Seen::kUndecided;
      words[member] = word;
    }
    if (all != Seen::kPosted) return all;
  }
  return Seen::kPosted;
}

ExpressLane::Seen ExpressLane::ReadLine(int member, std::uint64_t* word) const {
  const Line& line = LineOf(member);
  *word = line.word.load(std::memory_order_seq_cst);
  if (MeetingBits(*word) != MeetingBits(WordOf(meeting_, 0, 0))) return Seen::kUndecided;
  const bool same = line.key.load(std::memory_order_acquire) == key_;
  // A withdrawn post of another key may be older than this member's post. But a member that stays has seen
  // that all had posted its key, so the other one has withdrawn that post since.
  if (StateOf(*word) == kWithdrawn) return same || stays_ ? Seen::kWillNotMeet : Seen::kUndecided;
  if (!same) return Seen::kWillNotMeet;
  return StateOf(*word) == kLeaving ? Seen::kUndecided : Seen::kPosted;
}

// Returns the mask of the members that have not decided whether they stay.
std::uint64_t ExpressLane::Undecided() const {
  MemberMask undecided;
  std::uint64_t word;
  for (int member = 0; member < num_members_; ++member) {
    if (member == member_ || ReadLine(member, &word) != Seen::kUndecided) continue;
    undecided = undecided.With(MemberId(member));
  }
  return undecided.bits();
}

bool ExpressLane::HasPosted(int member) const {
  const Line& line = LineOf(member);
  const std::uint64_t word = line.word.load(std::memory_order_seq_cst);
  return MeetingBits(word) == MeetingBits(WordOf(meeting_, 0, 0)) && StateOf(word) != kWithdrawn &&
         line.key.load(std::memory_order_acquire) == key_;
}

// Returns false if all members have posted; then this member has not withdrawn.
bool ExpressLane::Withdraw() {
  std::atomic<std::uint64_t>& word = LineOf(member_).word;
  word.store(WordOf(meeting_, post_, kLeaving), std::memory_order_seq_cst);
  for (int member = 0; member < num_members_; ++member) {
    if (member == member_ || HasPosted(member)) continue;
    word.store(WordOf(meeting_, post_, kWithdrawn), std::memory_order_seq_cst);
    return true;
  }
  word.store(WordOf(meeting_, post_, kPosted), std::memory_order_seq_cst);
  return false;
}

}  // namespace tf_smddp
