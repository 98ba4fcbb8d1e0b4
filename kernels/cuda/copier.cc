#include "kernels/cuda/copier.h"

#include <algorithm>
#include <cstddef>
#include <utility>

extern const char tf_smddp_copies_ptx[];  // copies.cu

namespace tf_smddp::cuda {

Status Copier::Open(const Driver* driver, Context context, std::unique_ptr<Copier>* opened) {
  if (tf_smddp_copies_ptx[0] == '\0') return Internal("tf_smddp was built without device code");
  const CurrentContext current(driver, context);
  std::unique_ptr<Copier> copier(new Copier(driver, context));
  Status status =
      driver->Check("cuModuleLoadData", driver->ModuleLoadData(&copier->module_, tf_smddp_copies_ptx));
  if (!status.ok()) return status;
  status = driver->Check("cuModuleGetFunction",
                         driver->ModuleGetFunction(&copier->kernel_, copier->module_, "smddp_copy"));
  if (status.ok()) *opened = std::move(copier);
  return status;
}

Copier::~Copier() {
  if (module_ == nullptr) return;
  const CurrentContext current(driver_, context_);
  static_cast<void>(driver_->ModuleUnload(module_));  // nothing is lost if it fails
}

Status Copier::Put(const std::vector<Copy>& copies, Stream stream) const {
  constexpr std::size_t kMost = CopyTable::kCopies;
  for (std::size_t begin = 0; begin < copies.size(); begin += kMost) {
    const auto first = copies.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = std::min(copies.size() - begin, kMost);
    CopyTable table = {};
    std::copy_n(first, count, table.copies);
    unsigned long long most_bytes = 0;
    for (const Copy& copy : table.copies) most_bytes = std::max(most_bytes, copy.bytes);
    if (most_bytes == 0) continue;
    const auto tiles = static_cast<unsigned>((most_bytes + kCopyTile - 1) / kCopyTile);
    void* arguments[] = {&table};
    const Status status = driver_->Check(
        "cuLaunchKernel", driver_->LaunchKernel(kernel_, tiles, static_cast<unsigned>(count), 1, kCopyThreads,
                                                1, 1, 0, stream, arguments, nullptr));
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace tf_smddp::cuda
