#include "tests/pretend_gpu/host_memory.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/memory.h"
#include "tests/pretend_gpu/sticky_error.h"

namespace pretend_gpu {
namespace {

struct Pinned {
  std::size_t bytes;
  bool registered;
  std::shared_ptr<Uses> uses = std::make_shared<Uses>();
};

constexpr std::size_t kAlignment = 4096;

std::mutex mu;

// Guarded by mu. By address.
std::map<std::uintptr_t, Pinned>& All() {
  static auto* all = new std::map<std::uintptr_t, Pinned>;
  return *all;
}

// Takes the memory at `address` out of the table.
Pinned Take(void* address, bool registered) {
  std::unique_lock<std::mutex> lock(mu);
  const auto found = All().find(reinterpret_cast<std::uintptr_t>(address));
  if (found == All().end() || found->second.registered != registered) {
    End("%p is the beginning of no host memory that was %s, or no longer; do it once for each", address,
        registered ? "registered" : "allocated by cuMemHostAlloc");
  }
  // No program can wait for a broken device, whose streams end what they have by themselves.
  while (IsAnyBroken() && !found->second.uses->First().empty()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  if (const std::string task = found->second.uses->First(); !task.empty()) {
    End("the pinned host memory at %p (%zu bytes) is still used by %s, which is not done; wait for that "
        "stream "
        "first",
        address, found->second.bytes, task.c_str());
  }
  Pinned pinned = found->second;
  All().erase(found);
  return pinned;
}

}  // namespace

void* AllocateHost(std::size_t bytes) {
  void* address = nullptr;
  if (posix_memalign(&address, kAlignment, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(address, kFresh, bytes);
  std::lock_guard<std::mutex> lock(mu);
  All()[reinterpret_cast<std::uintptr_t>(address)] = {bytes, false};
  return address;
}

void FreeHost(void* address) {
  const Pinned pinned = Take(address, false);
  std::memset(address, kFreed, pinned.bytes);
  std::free(address);
}

void RegisterHost(void* address, std::size_t bytes) {
  if (SpaceOf(address) != nullptr) End("%p is device memory; only host memory can be registered", address);
  std::lock_guard<std::mutex> lock(mu);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = All().lower_bound(at + bytes);
  if (after != All().begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes > at) {
      End("the host memory at %p (%zu bytes) is pinned in part already, from %#lx on; register it once",
          address, bytes, before->first);
    }
  }
  All()[at] = {bytes, true};
}

void UnregisterHost(void* address) { Take(address, true); }

std::shared_ptr<Uses> PinnedUses(const void* address, std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mu);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto found = All().upper_bound(at);
  if (found == All().begin()) return nullptr;
  --found;
  const bool inside = at - found->first + bytes <= found->second.bytes;
  return inside ? found->second.uses : nullptr;
}

}  // namespace pretend_gpu
