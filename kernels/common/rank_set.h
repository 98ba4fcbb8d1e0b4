// RankSet: a set of ranks of a job, on however many hosts. A set of ranks of one host fits a mask
// (rank_mask.h).
//
// Place in the stack: above rank_id.h only.
#ifndef TF_SMDDP_KERNELS_COMMON_RANK_SET_H_
#define TF_SMDDP_KERNELS_COMMON_RANK_SET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/rank_id.h"

namespace tf_smddp {

class RankSet {
 public:
  RankSet() = default;
  // The set of `ranks`, which are valid.
  explicit RankSet(const std::vector<int>& ranks) {
    for (const int rank : ranks) Add(RankId(rank));
  }

  // Adds a rank, which is valid. True when it was not there.
  bool Add(RankId rank);
  bool Contains(RankId rank) const;
  bool empty() const { return words_.empty(); }
  std::size_t size() const;

  RankSet& operator|=(const RankSet& other);
  RankSet& operator&=(const RankSet& other);
  friend bool operator==(const RankSet& a, const RankSet& b) { return a.words_ == b.words_; }
  friend bool operator!=(const RankSet& a, const RankSet& b) { return !(a == b); }

  // Returns the ranks, ascending.
  std::vector<RankId> ranks() const;

 private:
  void DropEmptyWords();

  std::vector<std::uint64_t> words_;  // bit r % 64 of word r / 64: rank r; the last word is not 0
};

// "rank 2", "ranks 0, 2"; of a long list, ranks that follow each other are "0 to 63".
std::string RankList(const RankSet& ranks);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_RANK_SET_H_
