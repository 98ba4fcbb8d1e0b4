// Many copies in one launch: the PTX that the library has in it runs on the pretend GPU.
#include "kernels/cuda/copier.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/device_code.h"
#include "tests/cpp/cuda/block.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/reduce/reference.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kRows = 128;  // of a launch

void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

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

// As where NVRTC could not be fetched.
TEST_F(CopierTest, IsNotThereWithoutDeviceCode) {
  std::unique_ptr<cuda::DeviceCode> code;
  const Status status =
      cuda::DeviceCode::Load(compute_.device->driver(), compute_.device->context(), "", &code);
  EXPECT_EQ(code, nullptr);
  for (const char* part : {"built without device code", "install it again", "nvidia-cuda-nvrtc-cu12"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

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
  for (std::size_t i = 0; i < 2 * kRows + 5; ++i) sizes.push_back(i % 70);
  return sizes;
}

TEST_F(CopierTest, OfMoreThanALaunchTakes) { ExpectCopies(ForThreeLaunches(), 0, 0); }

// Floats of all magnitudes, the limits of both formats, and values halfway between two of theirs.
std::vector<float> Values(std::size_t count) {
  std::vector<std::uint32_t> bits = {0x00000000, 0x80000000, 0x3f800000, 0x3f801000, 0x3f803000, 0x3f808000,
                                     0x3f818000, 0x477fe000, 0x477ff000, 0x477fefff, 0x7f7fffff, 0xff7fffff,
                                     0x7f800000, 0xff800000, 0x33000000, 0x33000001, 0x33800000, 0x387fc000,
                                     0x387fe000, 0x00000001, 0x007fffff, 0x7f7f7fff, 0x7f7f8000};
  for (std::uint32_t next = 1; bits.size() < count; next = next * 1664525 + 1013904223) {
    if ((next >> 23 & 0xff) != 0xff) bits.push_back(next);  // neither infinite nor a NaN
  }
  std::vector<float> values(count);
  if (count > 0) std::memcpy(values.data(), bits.data(), count * sizeof(float));
  return values;
}

template <typename T>
Bytes AsBytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// To 16 bits and back, of all numbers of elements around what a thread and a block convert at once, aligned
// for four elements and not; against the conversions that the tests of kernels/reduce use.
void ExpectConversion(Compute* compute, const cuda::Copier& copier, HalfFormat format, cuda::Conversion there,
                      cuda::Conversion back) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4},
                                  std::size_t{1027}, std::size_t{16384}, std::size_t{20001}}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      const std::vector<float> values = Values(count + shift);
      std::vector<std::uint16_t> narrow(count + shift, 0xABAB);
      std::vector<float> wide(count + shift, 7.0f);
      const Block source(compute, AsBytes(values)), target(compute, AsBytes(narrow)),
          again(compute, AsBytes(wide));
      for (std::size_t i = shift; i < count + shift; ++i) {
        narrow[i] = EncodeHalf(format, values[i]);
        wide[i] = static_cast<float>(DecodeHalf(format, narrow[i]));
      }
      ExpectOk(copier.Put({{target.data() + 2 * shift, source.data() + 4 * shift, count, there}},
                          compute->order.compute));
      ExpectOk(copier.Put({{again.data() + 4 * shift, target.data() + 2 * shift, count, back}},
                          compute->order.compute));
      EXPECT_EQ(target.Read(), AsBytes(narrow)) << count << " behind " << shift;
      EXPECT_EQ(again.Read(), AsBytes(wide)) << count << " behind " << shift;
    }
  }
}

TEST_F(CopierTest, ToFloat16AndBack) {
  ExpectConversion(&compute_, *copier_, kFloat16Format, cuda::Conversion::kFloat32ToFloat16,
                   cuda::Conversion::kFloat16ToFloat32);
}

TEST_F(CopierTest, ToBFloat16AndBack) {
  ExpectConversion(&compute_, *copier_, kBFloat16Format, cuda::Conversion::kFloat32ToBFloat16,
                   cuda::Conversion::kBFloat16ToFloat32);
}

// A NaN stays one.
TEST_F(CopierTest, OfNans) {
  const std::vector<float> nans = {std::numeric_limits<float>::quiet_NaN(),
                                   -std::numeric_limits<float>::quiet_NaN()};
  for (const auto& [there, back] :
       {std::pair(cuda::Conversion::kFloat32ToFloat16, cuda::Conversion::kFloat16ToFloat32),
        std::pair(cuda::Conversion::kFloat32ToBFloat16, cuda::Conversion::kBFloat16ToFloat32)}) {
    const Block wide(&compute_, AsBytes(nans)), narrow(&compute_, Bytes(4));
    ExpectOk(copier_->Put({{narrow.data(), wide.data(), 2, there}}, compute_.order.compute));
    EXPECT_EQ(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(wide.data()), 0, 2, compute_.stream()),
              CUDA_SUCCESS);
    ExpectOk(copier_->Put({{wide.data(), narrow.data(), 2, back}}, compute_.order.compute));
    const Bytes content = wide.Read();
    std::vector<float> found(2);
    std::memcpy(found.data(), content.data(), content.size());
    for (const float value : found) EXPECT_TRUE(std::isnan(value));
  }
}

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
