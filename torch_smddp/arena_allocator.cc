// ArenaAllocator: torch's CPU memory, from the rank's arena while a thread computes gradients.
//
// Place in the stack: beside Python, above smddp.h, whose functions Python hands over. _memory.py compiles
// this for the torch that is installed, since c10's ABI is that of one version.
//
// Blocks above a limit come from the arena while the thread has said so. All others, and those for which it
// has no room, are torch's own.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>

namespace {

// smddp_allocate, smddp_free and smddp_is_in_arena.
void* (*g_allocate)(std::size_t bytes);
void (*g_free)(void* data);
int (*g_is_in_arena)(const void* data);

c10::Allocator* g_stock;
std::size_t g_above;
thread_local bool uses_arena = false;

void* FromArena(std::size_t bytes) {
  void* data = uses_arena && bytes > g_above ? g_allocate(bytes) : nullptr;
  if (data == nullptr || g_is_in_arena(data)) return data;
  g_free(data);
  return nullptr;
}

// Frees memory of either kind, for raw_deallocate(), which is told only the address.
void Delete(void* data) {
  if (!g_is_in_arena(data)) return g_stock->raw_deallocate(data);
  c10::profiledCPUMemoryReporter().Delete(data);
  g_free(data);
}

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = FromArena(bytes);
    if (data == nullptr) return g_stock->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &Delete, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

// Has torch ask here for memory, for the rest of the process. `above`: the bytes above which blocks may come
// from the arena.
extern "C" void torch_smddp_install(std::size_t above, decltype(g_allocate) allocate, decltype(g_free) free,
                                    decltype(g_is_in_arena) is_in_arena) {
  if (g_stock != nullptr) return;
  g_allocate = allocate;
  g_free = free;
  g_is_in_arena = is_in_arena;
  g_above = above;
  g_stock = c10::GetCPUAllocator();
  // With the highest priority, since it goes on with whichever was there.
  c10::SetCPUAllocator(new ArenaAllocator, /*priority=*/255);
}

// Whether blocks that this thread asks for come from the arena.
extern "C" void torch_smddp_use_arena(int uses) { uses_arena = uses != 0; }
