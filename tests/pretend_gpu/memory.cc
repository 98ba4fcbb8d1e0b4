#include "tests/pretend_gpu/memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/fault.h"

namespace pretend_gpu {
namespace {

std::mutex spaces_mu;

// Guarded by spaces_mu.
std::vector<Space*>& Spaces() {
  static auto* spaces = new std::vector<Space*>;
  return *spaces;
}

}  // namespace

std::string Allocation::Describe() const {
  char text[128];
  std::snprintf(text, sizeof(text), "allocation %lu (%zu bytes at %#lx, device %d)", id, bytes, address,
                device);
  return text;
}

Space::Space(int device, int fd, std::size_t bytes) : device_(device), bytes_(bytes) {
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (view == MAP_FAILED) End("the memory of device %d, %zu bytes, cannot be mapped: %m", device, bytes);
  device_view_ = static_cast<char*>(view);
  host_view_ = ForbiddenRange(bytes, fd, [this](const void* address) { return Describe(address); });
  std::lock_guard<std::mutex> lock(spaces_mu);
  Spaces().push_back(this);
}

Space::ByAddress::iterator Space::Holding(ByAddress& allocations, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto after = allocations.upper_bound(at);
  if (after == allocations.begin()) return allocations.end();
  --after;
  return at < after->first + after->second->bytes ? after : allocations.end();
}

void Space::Add(std::shared_ptr<Allocation> allocation) {
  std::lock_guard<std::mutex> lock(mu_);
  auto freed = freed_.upper_bound(allocation->address);
  if (freed != freed_.begin()) {
    const auto before = std::prev(freed);
    if (before->first + before->second->bytes > allocation->address) freed = before;
  }
  while (freed != freed_.end() && freed->first < allocation->address + allocation->bytes) {
    freed = freed_.erase(freed);
  }
  live_[allocation->address] = std::move(allocation);
}

void Space::Remove(const void* address) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = live_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == live_.end()) return;
  freed_[found->first] = found->second;
  live_.erase(found);
}

std::shared_ptr<Allocation> Space::Find(const void* address) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = Holding(live_, address);
  return found == live_.end() ? nullptr : found->second;
}

std::string Space::Describe(const void* address) {
  std::lock_guard<std::mutex> lock(mu_);
  if (const auto found = Holding(live_, address); found != live_.end()) {
    return "byte " + std::to_string(reinterpret_cast<std::uintptr_t>(address) - found->first) + " of " +
           found->second->Describe();
  }
  if (const auto found = Holding(freed_, address); found != freed_.end()) {
    return "in freed memory, formerly " + found->second->Describe();
  }
  return "memory of device " + std::to_string(device_) + " that is not allocated";
}

Space* SpaceOf(const void* address) {
  std::lock_guard<std::mutex> lock(spaces_mu);
  for (Space* space : Spaces()) {
    if (space->Contains(address)) return space;
  }
  return nullptr;
}

std::shared_ptr<Allocation> AllocationOf(Space* space, const void* address, std::size_t bytes,
                                         const char* what) {
  std::shared_ptr<Allocation> allocation = space->Find(address);
  if (allocation == nullptr) {
    End("the %s %p is %s; keep memory until its last use is done", what, address,
        space->Describe(address).c_str());
  }
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - allocation->address;
  if (bytes > allocation->bytes - offset) {
    End("the %s, %zu bytes from byte %zu on, goes beyond %s; use the size that was allocated", what, bytes,
        offset, allocation->Describe().c_str());
  }
  return allocation;
}

}  // namespace pretend_gpu
