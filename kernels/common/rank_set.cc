#include "kernels/common/rank_set.h"

#include <algorithm>

namespace tf_smddp {
namespace {

// A list of more ranks is shortened.
constexpr std::size_t kListed = 16;

}  // namespace

bool RankSet::Add(RankId rank) {
  const std::size_t word = rank.index() / 64;
  if (word >= words_.size()) words_.resize(word + 1, 0);
  const std::uint64_t bit = std::uint64_t{1} << rank.index() % 64;
  const bool is_new = (words_[word] & bit) == 0;
  words_[word] |= bit;
  return is_new;
}

bool RankSet::Contains(RankId rank) const {
  if (!rank.valid() || rank.index() / 64 >= words_.size()) return false;
  return (words_[rank.index() / 64] >> rank.index() % 64 & 1) != 0;
}

std::size_t RankSet::size() const {
  std::size_t count = 0;
  for (const std::uint64_t word : words_) count += static_cast<std::size_t>(__builtin_popcountll(word));
  return count;
}

RankSet& RankSet::operator|=(const RankSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()), 0);
  for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

RankSet& RankSet::operator&=(const RankSet& other) {
  words_.resize(std::min(words_.size(), other.words_.size()));
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  DropEmptyWords();
  return *this;
}

void RankSet::DropEmptyWords() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

std::vector<RankId> RankSet::ranks() const {
  std::vector<RankId> all;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (std::uint64_t left = words_[i]; left != 0; left &= left - 1) {
      all.push_back(RankId(static_cast<int>(i * 64) + __builtin_ctzll(left)));
    }
  }
  return all;
}

std::string RankList(const RankSet& ranks) {
  const std::vector<RankId> all = ranks.ranks();
  std::string text = all.size() <= 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < all.size();) {
    std::size_t last = i;
    while (all.size() > kListed && last + 1 < all.size() && all[last + 1].value() == all[last].value() + 1) {
      ++last;
    }
    if (i > 0) text += ", ";
    text += std::to_string(all[i].value());
    if (last > i) text += (last > i + 1 ? " to " : ", ") + std::to_string(all[last].value());
    i = last + 1;
  }
  return text;
}

}  // namespace tf_smddp
