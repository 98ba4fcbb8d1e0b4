// Block: memory of the device, for tests of kernels.
#ifndef TF_SMDDP_TESTS_CPP_CUDA_BLOCK_H_
#define TF_SMDDP_TESTS_CPP_CUDA_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"

namespace tf_smddp::testing {

using Bytes = std::vector<std::uint8_t>;

// Memory of the device, with content.
class Block {
 public:
  Block(Compute* compute, const Bytes& content) : compute_(compute), bytes_(content.size()) {
    EXPECT_EQ(cuMemAlloc_v2(&data_, std::max<std::size_t>(bytes_, 1)), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(data_, content.data(), bytes_, compute->stream()), CUDA_SUCCESS);
  }
  ~Block() {
    EXPECT_EQ(cuStreamSynchronize(compute_->stream()), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree_v2(data_), CUDA_SUCCESS);
  }

  char* data() const { return reinterpret_cast<char*>(data_); }
  Bytes Read() const {
    Bytes content(bytes_);
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(content.data(), data_, bytes_, compute_->stream()), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(compute_->stream()), CUDA_SUCCESS);
    return content;
  }

 private:
  Compute* const compute_;
  const std::size_t bytes_;
  CUdeviceptr data_ = 0;
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_CUDA_BLOCK_H_
