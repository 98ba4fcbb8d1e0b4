#include "kernels/control/express_lane.h"

#include <sched.h>

#include <cstring>

#include "kernels/common/clock.h"
#include "kernels/common/rank_mask.h"

namespace tf_smddp {
namespace {

// Of a post: | meeting: 42 bits | post: 20 bits | state: 2 bits |. Posts of one meeting are told apart, and
// none is taken for one of the meeting two before. That both counts wrap does not matter.
constexpr int kStateBits = 2, kPostBits = 20;
constexpr std::uint64_t kWithdrawn = 0, kPosted = 1, kLeaving = 2;

std::uint64_t MeetingBits(std::uint64_t word) { return word >> (kStateBits + kPostBits); }
std::uint64_t StateOf(std::uint64_t word) { return word & ((std::uint64_t{1} << kStateBits) - 1); }

// Between two looks at the clock, which takes longer than one at a post.
constexpr unsigned kLooks = 16;

// Who has waited for longer offers its core to others, of whom one may be waited for. Not before: whoever
// gets it may keep it for milliseconds.
constexpr std::chrono::microseconds kNoLongerBrief{200};

// Of a loop that looks at what other members do.
class Vigil {
 public:
  // *waited is how long it takes, to some hundred nanoseconds.
  explicit Vigil(std::chrono::nanoseconds* waited) : waited_(waited) { *waited = {}; }

  // After a look that was in vain: true every now and then, when *waited has just been set.
  bool KnowsTime() {
    if (++looks_ % kLooks != 0) return false;
    const Clock::time_point now = Clock::now();
    if (begin_ == Clock::time_point{}) begin_ = now;
    *waited_ = now - begin_;
    if (*waited_ > kNoLongerBrief) ::sched_yield();
    return true;
  }

 private:
  std::chrono::nanoseconds* const waited_;
  unsigned looks_ = 0;
  Clock::time_point begin_{};
};

}  // namespace

std::uint64_t ExpressLane::WordOf(std::uint64_t meeting, std::uint64_t post, std::uint64_t state) {
  const std::uint64_t low = post & ((std::uint64_t{1} << kPostBits) - 1);
  return meeting << (kStateBits + kPostBits) | low << kStateBits | state;
}

std::size_t ExpressLane::Bytes(int num_members) {
  return static_cast<std::size_t>(num_members) * (2 * (sizeof(Line) + kMostBytes) + sizeof(Finished));
}

ExpressLane::ExpressLane(std::byte* memory, int num_members, int member, const AbortRecord* abort)
    : lines_(reinterpret_cast<Line*>(memory)),
      finished_(reinterpret_cast<Finished*>(lines_ + num_members * 2)),
      rooms_(reinterpret_cast<std::byte*>(finished_ + num_members)),
      num_members_(num_members),
      member_(member),
      abort_(abort),
      // No member's first post is in a state that zeros could be taken for.
      meeting_(1) {}

std::byte* ExpressLane::RoomOf(int member) const {
  return rooms_ + (static_cast<std::size_t>(member) * 2 + meeting_ % 2) * kMostBytes;
}

void ExpressLane::Post(std::uint64_t what, const void* data, std::size_t bytes) {
  Line& own = LineOf(member_);
  what_ = what;
  stays_ = false;
  in_line_ = bytes <= kInlineBytes;
  if (bytes > 0) std::memcpy(in_line_ ? own.data : RoomOf(member_), data, bytes);
  own.what.store(what, std::memory_order_release);  // after what was withdrawn
  own.word.store(WordOf(meeting_, ++post_, kPosted), std::memory_order_seq_cst);
}

bool ExpressLane::Meet(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit, const void** inputs,
                       std::uint64_t* behind, std::chrono::nanoseconds* waited) {
  if (!Wait(patience, limit, behind, waited)) return false;
  for (int member = 0; member < num_members_; ++member) {
    inputs[member] = in_line_ ? LineOf(member).data : RoomOf(member);
  }
  ++meeting_;
  return true;
}

bool ExpressLane::Wait(std::chrono::nanoseconds patience, std::chrono::nanoseconds limit,
                       std::uint64_t* behind, std::chrono::nanoseconds* waited) {
  *behind = 0;
  Vigil vigil(waited);
  for (;;) {
    const Seen seen = Look();
    if (seen == Seen::kAll) return true;
    if (seen == Seen::kNever) {
      if (Withdraw()) return false;
      continue;
    }
    if (!vigil.KnowsTime()) continue;
    if (stays_) {
      ::sched_yield();
      // By a death in the middle, as a rule; everything ends now.
      if (abort_->raised()) return Look() == Seen::kAll;
      if (*waited > limit && (*behind = Undecided()) != 0) return false;
    } else if (*waited >= patience) {
      if (Withdraw()) return false;
      stays_ = true;
    }
  }
}

bool ExpressLane::FinishTogether(std::chrono::nanoseconds limit, std::uint64_t* behind,
                                 std::chrono::nanoseconds* waited) {
  const std::uint64_t meeting = meeting_ - 1;
  finished_[member_].meeting.store(meeting, std::memory_order_release);
  Vigil vigil(waited);
  for (;;) {
    MemberMask late;
    for (int member = 0; member < num_members_; ++member) {
      // No later one: that takes this member.
      const bool done = finished_[member].meeting.load(std::memory_order_acquire) == meeting;
      if (!done) late = late.With(MemberId(member));
    }
    *behind = late.bits();
    if (*behind == 0) return true;
    if (!vigil.KnowsTime()) continue;
    if (abort_->raised()) *behind = 0;
    if (*behind == 0 || *waited > limit) return false;
  }
}

ExpressLane::Seen ExpressLane::Look() const {
  std::uint64_t words[kMaxLocalRanks];
  for (const bool again : {false, true}) {
    Seen all = Seen::kAll;
    for (int member = 0; member < num_members_; ++member) {
      if (member == member_) continue;
      std::uint64_t word;
      const Seen seen = LookAt(member, &word);
      if (seen == Seen::kNever) return seen;
      if (seen == Seen::kSome || (again && word != words[member])) all = Seen::kSome;
      words[member] = word;
    }
    if (all != Seen::kAll) return all;
  }
  return Seen::kAll;
}

ExpressLane::Seen ExpressLane::LookAt(int member, std::uint64_t* word) const {
  const Line& line = LineOf(member);
  *word = line.word.load(std::memory_order_seq_cst);
  if (MeetingBits(*word) != MeetingBits(WordOf(meeting_, 0, 0))) return Seen::kSome;
  const bool same = line.what.load(std::memory_order_acquire) == what_;
  // What was withdrawn before says nothing about this; but who stays has seen everybody's post for this.
  if (StateOf(*word) == kWithdrawn) return same || stays_ ? Seen::kNever : Seen::kSome;
  if (!same) return Seen::kNever;
  return StateOf(*word) == kLeaving ? Seen::kSome : Seen::kAll;
}

// Bits of the members that have not said whether they stay.
std::uint64_t ExpressLane::Undecided() const {
  MemberMask undecided;
  std::uint64_t word;
  for (int member = 0; member < num_members_; ++member) {
    if (member == member_ || LookAt(member, &word) != Seen::kSome) continue;
    undecided = undecided.With(MemberId(member));
  }
  return undecided.bits();
}

bool ExpressLane::HasPosted(int member) const {
  const Line& line = LineOf(member);
  const std::uint64_t word = line.word.load(std::memory_order_seq_cst);
  return MeetingBits(word) == MeetingBits(WordOf(meeting_, 0, 0)) && StateOf(word) != kWithdrawn &&
         line.what.load(std::memory_order_acquire) == what_;
}

// False when all have posted, and this member has not withdrawn.
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
