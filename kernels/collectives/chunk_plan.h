// ChunkPlan: numbers the chunks of a batch. It is pure arithmetic, and the same on all ranks.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_CHUNK_PLAN_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_CHUNK_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tf_smddp {

class ChunkPlan {
 public:
  struct Chunk {
    std::size_t item;     // the number of its Add, from 0
    std::uint64_t begin;  // its first element
    std::uint64_t count;  // of elements; only the last chunk of an item is shorter than the others
  };

  // Adds an item of `count` elements, cut into chunks of `chunk_count` (at least 1). An item of 0 elements
  // has none.
  void Add(std::uint64_t count, std::uint64_t chunk_count) {
    items_.push_back({total_, count, chunk_count});
    total_ += (count + chunk_count - 1) / chunk_count;
  }

  // The number of chunks of all items.
  std::uint64_t total() const { return total_; }

  // Returns chunk number `index`, below total(). The items are in the order in which they were added.
  Chunk At(std::uint64_t index) const {
    // It is in the last item that starts at or before `index`: of items that start at the same number, only
    // the last one has chunks.
    const auto after = std::upper_bound(items_.begin(), items_.end(), index,
                                        [](std::uint64_t i, const Item& item) { return i < item.first; });
    const Item& item = *(after - 1);
    const std::uint64_t begin = (index - item.first) * item.chunk_count;
    return {static_cast<std::size_t>(after - items_.begin()) - 1, begin,
            std::min(item.chunk_count, item.count - begin)};
  }

  void Clear() {
    items_.clear();
    total_ = 0;
  }

 private:
  struct Item {
    std::uint64_t first;  // number of its first chunk
    std::uint64_t count;
    std::uint64_t chunk_count;
  };
  std::vector<Item> items_;
  std::uint64_t total_ = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_CHUNK_PLAN_H_
