// Many copies in one launch: the PTX that the library has in it runs on the pretend GPU.
#include "kernels/cuda/copier.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"

namespace tf_smddp::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Memory of the device, with content.
class Block {
 public:
  Block(Compute* compute, const Bytes& content) : compute_(compute), bytes_(content.size()) {
    EXPECT_EQ(cuMemAlloc_v2(&data_, bytes_), CUDA_SUCCESS);
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

class CopierTest : public ::testing::Test {
 protected:
  CopierTest() {
    const Status status = cuda::Copier::Open(compute_.device->driver(), compute_.device->context(), &copier_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  // Makes copies of these sizes in one go. Each begins so many bytes behind a multiple of 16.
  void ExpectCopies(const std::vector<std::size_t>& sizes, std::size_t from_shift, std::size_t to_shift) {
    constexpr std::size_t kGap = 48;
    std::size_t total = kGap;
    for (const std::size_t size : sizes) total += (size + 15) / 16 * 16 + kGap;
    Bytes content(total), expected(total, 0xAB);
    for (std::size_t i = 0; i < total; ++i) content[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
    const Block source(&compute_, content), target(&compute_, expected);
    std::vector<cuda::Copy> copies;
    std::size_t at = 16;
    for (const std::size_t size : sizes) {
      const std::size_t from = at + from_shift, to = at + to_shift;
      copies.push_back({target.data() + to, source.data() + from, size});
      std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(from), size,
                  expected.begin() + static_cast<std::ptrdiff_t>(to));
      at += (size + 15) / 16 * 16 + kGap;
    }
    const Status status = copier_->Put(copies, compute_.order.compute);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(target.Read(), expected) << "from " << from_shift << " to " << to_shift;
  }

  Compute compute_;
  std::unique_ptr<cuda::Copier> copier_;
};

TEST_F(CopierTest, OfAllSizesAndPlaces) {
  const std::vector<std::size_t> sizes = {0,    1,    3,    4,     15,    16,    17,   63,
                                          4095, 4096, 4100, 16383, 16384, 16385, 40000};
  for (const auto& [from, to] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 0}, {4, 4}, {8, 0}, {0, 12}, {2, 2}, {1, 0}, {0, 3}}) {
    ExpectCopies(sizes, from, to);
  }
}

std::vector<std::size_t> ForThreeLaunches() {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 2 * cuda::CopyTable::kCopies + 5; ++i) sizes.push_back(i % 70);
  return sizes;
}

TEST_F(CopierTest, OfMoreThanALaunchTakes) { ExpectCopies(ForThreeLaunches(), 0, 0); }

TEST_F(CopierTest, CountsLaunches) {
  std::uint64_t launches = pretend_gpu_launches("smddp_copy");
  ExpectCopies(ForThreeLaunches(), 0, 0);
  EXPECT_EQ(pretend_gpu_launches("smddp_copy") - launches, 3u);
  launches = pretend_gpu_launches("smddp_copy");
  ExpectCopies({}, 0, 0);
  ExpectCopies({0, 0}, 0, 0);
  EXPECT_EQ(pretend_gpu_launches("smddp_copy"), launches);
}

}  // namespace
}  // namespace tf_smddp::testing
