// Addresses: an array with an entry for each participant. Those of one host fit on the stack.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_ADDRESSES_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_ADDRESSES_H_

#include <cstddef>
#include <vector>

#include "kernels/common/config.h"

namespace tf_smddp {

class Addresses {
 public:
  explicit Addresses(int num_ranks)
      : more_(num_ranks > kMaxLocalRanks ? static_cast<std::size_t>(num_ranks) : 0),
        data_(more_.empty() ? few_ : more_.data()) {}
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  const void*& operator[](int participant) { return data_[participant]; }
  const void* const* data() const { return data_; }

 private:
  const void* few_[kMaxLocalRanks];
  std::vector<const void*> more_;
  const void** const data_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_ADDRESSES_H_
