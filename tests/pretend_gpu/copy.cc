#include "tests/pretend_gpu/copy.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/host_memory.h"
#include "tests/pretend_gpu/memory.h"

namespace pretend_gpu {
namespace {

// One end of a copy.
struct Place {
  char* at;  // for tasks
  bool device;
  bool pinned;
};

// Checks the address, and notes its use by the task.
Place Resolve(const void* address, std::size_t bytes, Side side, const char* what, const StreamHandle& stream,
              Task* task) {
  const std::string use = std::string(Call::Name()) + " on " + stream.stream->Describe();
  if (Space* space = SpaceOf(address)) {
    const auto allocation = AllocationOf(space, address, bytes, what);
    if (side == Side::kHost) {
      End("the %s %p is %s, and this call takes host memory there; use the call for that direction", what,
          address, space->Describe(address).c_str());
    }
    task->uses.emplace_back(allocation->uses, use);
    return {space->DeviceView(address), true, false};
  }
  const auto uses = PinnedUses(address, bytes);
  if (side == Side::kDevice && uses == nullptr) {
    End("the %s %p is no device memory; pass what cuMemAlloc returned", what, address);
  }
  if (uses != nullptr) task->uses.emplace_back(uses, use);
  return {const_cast<char*>(static_cast<const char*>(address)), false, uses != nullptr};
}

}  // namespace

void Copy(void* destination, Side destination_side, const void* source, Side source_side, std::size_t bytes,
          const StreamHandle& stream, bool wait) {
  if (bytes == 0) return;
  Task task;
  const Place to = Resolve(destination, bytes, destination_side, "destination", stream, &task);
  const Place from = Resolve(source, bytes, source_side, "source", stream, &task);
  Log("%zu bytes from %p%s to %p%s on %s", bytes, source, from.device ? " (device)" : "", destination,
      to.device ? " (device)" : "", stream.stream->Describe().c_str());
  if (!from.device && !from.pinned && !wait) {
    auto staged = std::make_shared<std::vector<char>>(from.at, from.at + bytes);
    task.run = [at = to.at, staged] { std::memcpy(at, staged->data(), staged->size()); };
  } else {
    task.run = [to, from, bytes] { std::memmove(to.at, from.at, bytes); };
  }
  task.works = true;
  const auto end = Enqueue(stream, std::move(task));
  if (wait || (!to.device && !to.pinned)) end->Wait();
}

void Fill(void* destination, std::uint64_t value, std::size_t width, std::size_t count,
          const StreamHandle& stream) {
  if (count == 0) return;
  if (reinterpret_cast<std::uintptr_t>(destination) % width != 0) {
    End("the destination %p is not a multiple of the %zu bytes of an element; align it", destination, width);
  }
  Task task;
  const Place to = Resolve(destination, width * count, Side::kDevice, "destination", stream, &task);
  Log("%zu elements of %zu bytes at %p on %s", count, width, destination, stream.stream->Describe().c_str());
  task.works = true;
  task.run = [at = to.at, value, width, count] {
    for (std::size_t i = 0; i < count; i++) std::memcpy(at + i * width, &value, width);
  };
  Enqueue(stream, std::move(task));
}

}  // namespace pretend_gpu
