#include "tests/pretend_gpu/extension.h"

#include <utility>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/host_memory.h"
#include "tests/pretend_gpu/memory.h"

namespace pretend_gpu {

Memory UseMemory(const void* address, std::size_t bytes, const char* what, const std::string& user) {
  if (bytes == 0) return {nullptr, -1, nullptr};
  if (Space* space = SpaceOf(address)) {
    const auto allocation = AllocationOf(space, address, bytes, what);
    return {space->DeviceView(address), allocation->device, std::make_shared<Use>(allocation->uses, user)};
  }
  auto uses = PinnedUses(address, bytes);
  if (uses == nullptr) {
    End("the %s %p is pageable host memory; pass device memory, or pin it", what, address);
  }
  return {static_cast<char*>(const_cast<void*>(address)), -1, std::make_shared<Use>(std::move(uses), user)};
}

StreamFacts FactsOf(void* stream) {
  const StreamHandle handle = StreamOf(stream);
  return {handle.stream->device(), handle.stream->id(), handle.stream->Describe()};
}

WorkEnd EnqueueWork(void* stream, Work work) {
  Task task;
  task.run = std::move(work.run);
  task.wanted_elsewhere = std::move(work.wanted_elsewhere);
  task.works = true;
  auto end = Enqueue(StreamOf(stream), std::move(task));
  return {[end] { end->Wait(); }, [end] { return end->Reached(); }};
}

void WaitAsCallsDo(void* context) { Contexts().Get(context)->AwaitLock(); }
void WaitAsFreeDoes(void* context) { Contexts().Get(context)->LockAlone(); }

}  // namespace pretend_gpu
