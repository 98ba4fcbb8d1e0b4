// IdMask: a set of ids below 64, in one 64-bit word. MemberMask holds members of a communicator on one host;
// ranks of a job may be more (rank_set.h).
//
// Place in the stack: the bottom. It is a value: shared memory holds the word, as
// std::atomic<std::uint64_t>, and bits() and the constructor convert between the two. Nothing in here
// allocates; all of it is constexpr.
#ifndef TF_SMDDP_KERNELS_COMMON_RANK_MASK_H_
#define TF_SMDDP_KERNELS_COMMON_RANK_MASK_H_

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/common/rank_id.h"

namespace tf_smddp {

template <typename AnyId>
class IdMask {
 public:
  static constexpr int kCapacity = 64;

  // The empty set.
  constexpr IdMask() = default;
  // Bit i of `bits` says whether id i is in the set.
  constexpr explicit IdMask(std::uint64_t bits) : bits_(bits) {}

  // The ids 0 to size - 1, as far as they are below kCapacity; empty for a negative size.
  static constexpr IdMask FirstN(int size) {
    if (size <= 0) return IdMask();
    return size >= kCapacity ? IdMask(~std::uint64_t{0}) : IdMask((std::uint64_t{1} << size) - 1);
  }
  // The set of `id` alone; empty when `id` is not 0 to kCapacity - 1.
  static constexpr IdMask Of(AnyId id) {
    const bool fits = id.value() >= 0 && id.value() < kCapacity;
    return IdMask(fits ? std::uint64_t{1} << id.value() : 0);
  }

  constexpr std::uint64_t bits() const { return bits_; }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const { return __builtin_popcountll(bits_); }

  // False for ids that no set can hold.
  constexpr bool Contains(AnyId id) const { return (bits_ & Of(id).bits_) != 0; }
  constexpr bool ContainsAll(IdMask others) const { return (others.bits_ & ~bits_) == 0; }

  constexpr IdMask With(AnyId id) const { return IdMask(bits_ | Of(id).bits_); }
  constexpr IdMask Without(AnyId id) const { return IdMask(bits_ & ~Of(id).bits_); }

  friend constexpr IdMask operator|(IdMask a, IdMask b) { return IdMask(a.bits_ | b.bits_); }
  friend constexpr IdMask operator&(IdMask a, IdMask b) { return IdMask(a.bits_ & b.bits_); }
  // The ids of `a` that are not in `b`.
  friend constexpr IdMask operator-(IdMask a, IdMask b) { return IdMask(a.bits_ & ~b.bits_); }
  constexpr IdMask& operator|=(IdMask other) { return *this = *this | other; }
  constexpr IdMask& operator&=(IdMask other) { return *this = *this & other; }
  constexpr IdMask& operator-=(IdMask other) { return *this = *this - other; }
  friend constexpr bool operator==(IdMask a, IdMask b) { return a.bits_ == b.bits_; }
  friend constexpr bool operator!=(IdMask a, IdMask b) { return a.bits_ != b.bits_; }

  // Iterates over the ids of the set in ascending order: `for (const MemberId member : mask)`.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = AnyId;
    using difference_type = std::ptrdiff_t;
    using pointer = const AnyId*;
    using reference = AnyId;

    constexpr explicit Iterator(std::uint64_t left) : left_(left) {}
    constexpr AnyId operator*() const { return AnyId(__builtin_ctzll(left_)); }
    constexpr Iterator& operator++() {
      left_ &= left_ - 1;
      return *this;
    }
    friend constexpr bool operator==(Iterator a, Iterator b) { return a.left_ == b.left_; }
    friend constexpr bool operator!=(Iterator a, Iterator b) { return a.left_ != b.left_; }

   private:
    std::uint64_t left_;
  };
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr Iterator end() const { return Iterator(0); }

 private:
  std::uint64_t bits_ = 0;
};

using MemberMask = IdMask<MemberId>;

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_RANK_MASK_H_
