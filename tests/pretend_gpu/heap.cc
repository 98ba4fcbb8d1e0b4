#include "tests/pretend_gpu/heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kLeastGuard = 512;
constexpr unsigned char kGuard = 0xFD;
// Programs with allocators of their own take most of a device at once. Memory behind this many bytes of an
// allocation stays zero, and takes no memory of the machine.
constexpr std::size_t kPoisonedBytes = std::size_t{64} << 20;

int MakeFile(int device, std::size_t bytes) {
  const int fd = memfd_create("pretend_gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    End("the memory of device %d, %zu bytes, cannot be made: %m; lower PRETEND_GPU_MEMORY_MB", device, bytes);
  }
  return fd;
}

}  // namespace

Heap::Heap(int device, std::size_t bytes) : space_(device, MakeFile(device, bytes), bytes) {
  holes_[reinterpret_cast<std::uintptr_t>(space_.host_view())] = bytes;
}

void* Heap::Allocate(std::size_t bytes) {
  static std::atomic<std::uint64_t> ids{1};
  if (bytes > space_.bytes()) return nullptr;
  const std::size_t block_bytes = (bytes + kLeastGuard + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard<std::mutex> lock(mu_);
  const auto hole =
      std::find_if(holes_.begin(), holes_.end(), [&](const auto& h) { return h.second >= block_bytes; });
  if (hole == holes_.end()) return nullptr;
  const auto [address, hole_bytes] = *hole;
  holes_.erase(hole);
  if (hole_bytes > block_bytes) holes_[address + block_bytes] = hole_bytes - block_bytes;
  used_ += block_bytes;

  auto allocation = std::make_shared<Allocation>();
  *allocation = {address, bytes, ids++, space_.device()};
  blocks_[address] = {block_bytes, allocation};
  void* result = reinterpret_cast<void*>(address);
  std::memset(space_.DeviceView(result), kFresh, std::min(bytes, kPoisonedBytes));
  std::memset(space_.DeviceView(result) + bytes, kGuard, block_bytes - bytes);
  space_.Add(std::move(allocation));
  return result;
}

void Heap::CheckGuard(const Block& block) {
  const Allocation& allocation = *block.allocation;
  const auto* begin =
      reinterpret_cast<unsigned char*>(space_.DeviceView(reinterpret_cast<void*>(allocation.address)));
  const auto* written = std::find_if(begin + allocation.bytes, begin + block.bytes,
                                     [](unsigned char byte) { return byte != kGuard; });
  if (written == begin + block.bytes) return;
  End("a kernel wrote byte %td of %s, which is beyond its end; check the kernel's bounds", written - begin,
      allocation.Describe().c_str());
}

void Heap::CheckGuards() {
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [address, block] : blocks_) CheckGuard(block);
}

void Heap::Free(void* address) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == blocks_.end()) {
    End("%p is %s, and no allocation that can be freed begins there; free once what cuMemAlloc returned",
        address, space_.Describe(address).c_str());
  }
  const Allocation& allocation = *found->second.allocation;
  if (const std::string task = allocation.uses->First(); !task.empty()) {
    End("%s is still used by %s, which is not done; wait for that stream before the memory is freed",
        allocation.Describe().c_str(), task.c_str());
  }
  CheckGuard(found->second);
  std::memset(space_.DeviceView(address), kFreed, std::min(allocation.bytes, kPoisonedBytes));
  space_.Remove(address);

  std::uintptr_t begin = found->first;
  std::size_t bytes = found->second.bytes;
  used_ -= bytes;
  blocks_.erase(found);
  if (const auto next = holes_.find(begin + bytes); next != holes_.end()) {
    bytes += next->second;
    holes_.erase(next);
  }
  const auto after = holes_.lower_bound(begin);
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
    }
  }
  holes_[begin] = bytes;
}

std::size_t Heap::free_bytes() {
  std::lock_guard<std::mutex> lock(mu_);
  return space_.bytes() - used_;
}

}  // namespace pretend_gpu
