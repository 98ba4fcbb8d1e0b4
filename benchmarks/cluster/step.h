// Step: the gradients of one training step, and when they are ready.
//
// Place in the stack: beside exchanges.h. It is arithmetic, apart from reading a file.
#ifndef TF_SMDDP_BENCHMARKS_CLUSTER_STEP_H_
#define TF_SMDDP_BENCHMARKS_CLUSTER_STEP_H_

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/fusion/bucket.h"

namespace tf_smddp::cluster {

// Tensors [first, last) of a step, and their elements in the memory that holds all tensors.
struct Batch {
  std::size_t first, last;
  std::uint64_t begin, count;
};

class Step {
 public:
  // `path`: a file with the elements of each tensor, in the order in which the gradients are ready.
  // `compute_seconds`: a third of it is the forward pass; the gradients come evenly during the rest. 0: all
  // are there at the beginning.
  Step(const std::string& path, double compute_seconds) : compute_(compute_seconds) {
    std::ifstream file(path);
    for (std::uint64_t count = 0; file >> count;) {
      counts_.push_back(count);
      begins_.push_back(begins_.back() + count);
    }
  }

  const std::vector<std::uint64_t>& counts() const { return counts_; }
  std::uint64_t elements() const { return begins_.back(); }
  double compute_seconds() const { return compute_; }

  Batch Range(std::size_t first, std::size_t last) const {
    return {first, last, begins_[first], begins_[last] - begins_[first]};
  }

  // When tensor number `index` is ready.
  double ReadyAt(std::size_t index) const {
    const double part = static_cast<double>(index + 1) / static_cast<double>(counts_.size());
    return compute_ * (1.0 / 3 + 2.0 / 3 * part);
  }

  // The batch that the engine makes of the tensors from `first` on, the first of which is ready. It ends at
  // the cap, or with the last tensor that is ready at `now`: a rank without other work seals what there is.
  Batch BatchFrom(std::size_t first, double now, std::uint64_t cap_bytes) const {
    std::size_t last = first;
    std::uint64_t open = 0;
    do {
      open = OpenAfter(open, counts_[last] * sizeof(float), last + 1 == counts_.size(), cap_bytes);
      ++last;
    } while (open > 0 && ReadyAt(last) <= now);
    return Range(first, last);
  }

  // The end of the tensors from `first` on that are ready at `now` and fit a fusion buffer; at least one does
  // if it is ready.
  std::size_t Fused(std::size_t first, double now, std::uint64_t buffer_bytes) const {
    std::size_t last = first;
    while (last < counts_.size() && ReadyAt(last) <= now &&
           (last == first || Range(first, last + 1).count * sizeof(float) <= buffer_bytes)) {
      ++last;
    }
    return last;
  }

 private:
  const double compute_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> begins_ = {0};
};

}  // namespace tf_smddp::cluster

#endif  // TF_SMDDP_BENCHMARKS_CLUSTER_STEP_H_
