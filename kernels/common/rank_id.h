// The three index spaces of ranks, as types that do not convert into each other:
//
//   RankId         the index of a rank in the job. Users, logs and error texts name ranks by it.
//   MemberId       the index of a rank in one communicator, whose ranks are in ascending order
//   ParticipantId  the index of a member among those that take part in one request: the members that had
//                  not left the communicator when the request became ready, in ascending order
//
// Place in the stack: the bottom. Sets of them are in rank_mask.h.
#ifndef TF_SMDDP_KERNELS_COMMON_RANK_ID_H_
#define TF_SMDDP_KERNELS_COMMON_RANK_ID_H_

#include <cstddef>

namespace tf_smddp {

template <typename Space>
class Id {
 public:
  // An id is made from a plain index only by name: RankId(3). The default is no rank at all.
  constexpr Id() = default;
  constexpr explicit Id(int value) : value_(value) {}

  // -1 for no rank.
  constexpr int value() const { return value_; }
  constexpr bool valid() const { return value_ >= 0; }

  // The index for a vector or an array; for valid ids only.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }

  constexpr Id& operator++() {
    ++value_;
    return *this;
  }

  friend constexpr bool operator==(Id a, Id b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(Id a, Id b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(Id a, Id b) { return a.value_ < b.value_; }

 private:
  int value_ = -1;
};

using RankId = Id<struct RankSpace>;
using MemberId = Id<struct MemberSpace>;
using ParticipantId = Id<struct ParticipantSpace>;

// The ids 0 to size - 1 in order: `for (const RankId rank : FirstIds<RankId>(size))`. Unlike a mask, it has
// no limit.
template <typename AnyId>
class FirstIds {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(AnyId id) : id_(id) {}
    constexpr AnyId operator*() const { return id_; }
    constexpr Iterator& operator++() {
      ++id_;
      return *this;
    }
    friend constexpr bool operator!=(Iterator a, Iterator b) { return a.id_ != b.id_; }

   private:
    AnyId id_;
  };

  constexpr explicit FirstIds(int size) : size_(size) {}
  constexpr Iterator begin() const { return Iterator(AnyId(0)); }
  constexpr Iterator end() const { return Iterator(AnyId(size_)); }

 private:
  int size_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_RANK_ID_H_
