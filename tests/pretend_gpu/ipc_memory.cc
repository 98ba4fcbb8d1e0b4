#include "tests/pretend_gpu/ipc_memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/heap.h"
#include "tests/pretend_gpu/memory.h"
#include "tests/pretend_gpu/other_process.h"

namespace pretend_gpu {
namespace {

constexpr std::uint32_t kMagic = 0x50475055;

struct Handle {
  std::uint32_t magic;
  std::int32_t process;
  std::int32_t fd;
  std::int32_t device;
  std::uint64_t inode;
  std::uint64_t space_bytes;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t allocation_id;
  std::uint32_t entry;
  std::uint32_t padding;
};
static_assert(sizeof(Handle) == kIpcHandleBytes);

// An exported allocation, in the ledger.
struct alignas(64) Entry {
  std::atomic<std::uint64_t> allocation_id;  // 0: not in use
  std::array<std::atomic<std::int32_t>, 14> importers;
};
constexpr std::size_t kEntries = kLedgerBytes / sizeof(Entry);

Entry* Ledger(const Space& space) {
  return reinterpret_cast<Entry*>(space.DeviceView(space.host_view() + space.bytes()));
}

// What this process has open of another one.
struct Import {
  Space* space;
  Entry* entry;
  int count;
};

std::mutex mu;

// Guarded by mu. By address.
std::map<const void*, Import>& Imports() {
  static auto* imports = new std::map<const void*, Import>;
  return *imports;
}

// Guarded by mu. By inode.
std::map<std::uint64_t, Space*>& ForeignSpaces() {
  static auto* spaces = new std::map<std::uint64_t, Space*>;
  return *spaces;
}

// Puts `to` into one of the importers that are `from`; returns false if there is none.
bool Replace(Entry* entry, std::int32_t from, std::int32_t to) {
  return std::any_of(entry->importers.begin(), entry->importers.end(), [&](auto& importer) {
    std::int32_t expected = from;
    return importer.compare_exchange_strong(expected, to);
  });
}

}  // namespace

bool ExportMemory(const void* address, void* handle) {
  Space* space = SpaceOf(address);
  if (space == nullptr) End("%p is no device memory; export what cuMemAlloc returned", address);
  const auto allocation = AllocationOf(space, address, 1, "exported address");
  if (allocation->imported) End("%s cannot be exported again", allocation->Describe().c_str());
  std::lock_guard<std::mutex> lock(mu);
  Entry* const ledger = Ledger(*space);
  Entry* entry = std::find_if(ledger, ledger + kEntries,
                              [&](const Entry& e) { return e.allocation_id == allocation->id; });
  if (entry == ledger + kEntries) {
    entry = std::find_if(ledger, ledger + kEntries, [](const Entry& e) { return e.allocation_id == 0; });
    if (entry == ledger + kEntries) return false;
    entry->allocation_id = allocation->id;
  }
  const Handle made{kMagic,
                    getpid(),
                    space->fd(),
                    space->device(),
                    InodeOf(space->fd()),
                    space->bytes(),
                    allocation->address - reinterpret_cast<std::uintptr_t>(space->host_view()),
                    allocation->bytes,
                    allocation->id,
                    static_cast<std::uint32_t>(entry - ledger),
                    0};
  std::memcpy(handle, &made, sizeof(made));
  return true;
}

void EndExport(const void* address) {
  Space* space = SpaceOf(address);
  const auto allocation = space == nullptr ? nullptr : space->Find(address);
  if (allocation == nullptr || allocation->imported) return;  // Heap::Free says what is wrong
  std::lock_guard<std::mutex> lock(mu);
  Entry* const ledger = Ledger(*space);
  Entry* entry = std::find_if(ledger, ledger + kEntries,
                              [&](const Entry& e) { return e.allocation_id == allocation->id; });
  if (entry == ledger + kEntries) return;
  for (auto& importer : entry->importers) {
    const std::int32_t process = importer.load();
    if (process != 0 && IsAlive(process)) {
      End("%s is still open in process %d; let it call cuIpcCloseMemHandle before the memory is freed",
          allocation->Describe().c_str(), process);
    }
    importer = 0;
  }
  entry->allocation_id = 0;
}

void* ImportMemory(const void* handle) {
  Handle from;
  std::memcpy(&from, handle, sizeof(from));
  if (from.magic != kMagic || from.entry >= kEntries) {
    End("these 64 bytes are no memory handle; pass what cuIpcGetMemHandle wrote");
  }
  if (from.process == getpid()) {
    End("the handle is of this very process, which has the memory already; open it in another process");
  }
  const int fd = OpenFileOf(from.process, from.fd, from.inode);
  if (fd < 0) return nullptr;
  std::lock_guard<std::mutex> lock(mu);
  Space*& space = ForeignSpaces()[from.inode];
  if (space == nullptr) space = new Space(from.device, fd, from.space_bytes, from.space_bytes + kLedgerBytes);
  Entry* const entry = Ledger(*space) + from.entry;
  void* const address = space->host_view() + from.offset;
  if (const auto found = Imports().find(address); found != Imports().end()) {
    found->second.count++;
    return address;
  }
  if (!Replace(entry, 0, getpid())) {
    End("allocation %lu of process %d is open in %zu processes, which is the most", from.allocation_id,
        from.process, entry->importers.size());
  }
  if (entry->allocation_id != from.allocation_id) {
    End("allocation %lu of process %d was freed there; keep it until all importers have closed it",
        from.allocation_id, from.process);
  }
  auto allocation = std::make_shared<Allocation>();
  *allocation = {reinterpret_cast<std::uintptr_t>(address), from.bytes, from.allocation_id, from.device,
                 true};
  space->Add(std::move(allocation));
  Imports()[address] = {space, entry, 1};
  return address;
}

void EndImport(void* address) {
  std::lock_guard<std::mutex> lock(mu);
  const auto found = Imports().find(address);
  if (found == Imports().end()) {
    Space* space = SpaceOf(address);
    End("%p is %s, and is not open; close once what cuIpcOpenMemHandle returned", address,
        space == nullptr ? "no device memory" : space->Describe(address).c_str());
  }
  const auto allocation = found->second.space->Find(address);
  if (const std::string task = allocation->uses->First(); !task.empty()) {
    End("%s is still used by %s, which is not done; wait for that stream before it is closed",
        allocation->Describe().c_str(), task.c_str());
  }
  if (--found->second.count > 0) return;
  found->second.space->Remove(address);
  Replace(found->second.entry, getpid(), 0);
  Imports().erase(found);
}

}  // namespace pretend_gpu
