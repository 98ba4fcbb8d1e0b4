#include "kernels/cuda/copier.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "kernels/cuda/copy_table.h"

extern const char tf_smddp_copies_ptx[];  // copies.cu

namespace tf_smddp::cuda {
namespace {

// In the order of Conversion.
constexpr const char* kKernels[kNumConversions] = {"smddp_copy", "smddp_float32_to_float16",
                                                   "smddp_float16_to_float32", "smddp_float32_to_bfloat16",
                                                   "smddp_bfloat16_to_float32"};

}  // namespace

Status Copier::Open(const Driver* driver, Context context, std::unique_ptr<Copier>* opened) {
  std::unique_ptr<Copier> copier(new Copier);
  Status status = DeviceCode::Load(driver, context, tf_smddp_copies_ptx, &copier->code_);
  for (std::size_t i = 0; status.ok() && i < copier->kernels_.size(); ++i) {
    status = copier->code_->Find(kKernels[i], &copier->kernels_[i]);
  }
  if (status.ok()) *opened = std::move(copier);
  return status;
}

Status Copier::Put(const std::vector<Copy>& copies, Stream stream) const {
  for (int i = 0; i < kNumConversions; ++i) {
    const auto conversion = static_cast<Conversion>(i);
    std::vector<Copy> alike;
    std::copy_if(copies.begin(), copies.end(), std::back_inserter(alike),
                 [conversion](const Copy& copy) { return copy.conversion == conversion && copy.count > 0; });
    const Status status = PutAlike(conversion, alike, stream);
    if (!status.ok()) return status;
  }
  return {};
}

Status Copier::PutAlike(Conversion conversion, const std::vector<Copy>& copies, Stream stream) const {
  const Function kernel = kernels_[static_cast<std::size_t>(conversion)];
  for (std::size_t begin = 0; begin < copies.size(); begin += CopyTable::kRows) {
    const auto rows = std::min<std::size_t>(copies.size() - begin, CopyTable::kRows);
    CopyTable table = {};
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      const Copy& copy = copies[begin + i];
      table.rows[i] = {copy.to, copy.from, copy.count};
      most = std::max(most, copy.count);
    }
    const auto tiles = static_cast<unsigned>((most + kCopyTile - 1) / kCopyTile);
    const Status status =
        code_->Launch(kernel, tiles, static_cast<unsigned>(rows), kCopyThreads, &table, stream);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace tf_smddp::cuda
