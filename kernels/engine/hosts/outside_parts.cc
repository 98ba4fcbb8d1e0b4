#include "kernels/engine/hosts/outside_parts.h"

#include <cstring>
#include <string>

#include "kernels/common/launch_environment.h"

namespace tf_smddp {
namespace {

// All values are 64-bit words. The parts begin with their number; each has its rank, its rows, the number of
// its splits, and these.
using Words = std::vector<std::uint64_t>;

}  // namespace

void* StoreOutsideParts(Communicator* communicator, const std::vector<RelayPart>& parts, Cell* cell) {
  Words words = {0};
  for (const RelayPart& part : parts) {
    if (communicator->job().LocalRankOf(part.rank.value()) >= 0) continue;
    ++words[0];
    words.push_back(part.rank.index());
    words.push_back(part.rows);
    words.push_back(part.splits.size());
    words.insert(words.end(), part.splits.begin(), part.splits.end());
  }
  const std::size_t bytes = words.size() * sizeof words[0];
  Arena& arena = communicator->job().arena();
  void* const memory = arena.Allocate(bytes);
  if (memory == nullptr) {
    communicator->job().Abort("rank " + std::to_string(communicator->job().rank()) + ": " +
                              arena.FullError("what other hosts sent").message());
    return nullptr;
  }
  std::memcpy(memory, words.data(), bytes);
  cell->splits_offset = arena.OffsetOf(memory, bytes);
  cell->rows = words.size();
  return memory;
}

bool ReadOutsideParts(Communicator* communicator, const Cell& cell, std::vector<RelayPart>* parts) {
  constexpr std::uint64_t kMostWords = 1 + std::uint64_t{kMaxRanks} * (3 + kMaxLocalRanks);
  if (cell.rows == 0) {
    const std::uint64_t outside = MemberMask::Of(communicator->group().segment().outside()).bits();
    for (const RankId rank : communicator->ToRanks(outside).ranks()) parts->push_back({rank, 0, {}});
    return true;
  }
  if (cell.rows > kMostWords) return false;
  Words words(cell.rows);
  const std::size_t bytes = words.size() * sizeof words[0];
  const std::byte* const memory = communicator->group().view(0).Resolve(cell.splits_offset, bytes);
  if (memory == nullptr) return false;
  std::memcpy(words.data(), memory, bytes);
  std::size_t at = 1;
  for (std::uint64_t left = words[0]; left > 0; --left) {
    if (words.size() - at < 3) return false;
    RelayPart part;
    if (words[at] >= static_cast<std::uint64_t>(communicator->job().size())) return false;
    part.rank = RankId(static_cast<int>(words[at]));
    part.rows = words[at + 1];
    const std::uint64_t splits = words[at + 2];
    at += 3;
    if (splits > words.size() - at) return false;
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
    part.splits.assign(begin, begin + static_cast<std::ptrdiff_t>(splits));
    at += splits;
    parts->push_back(std::move(part));
  }
  return at == words.size();
}

}  // namespace tf_smddp
