#include "kernels/tf/arena_allocator.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tf/tensorflow_private.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/allocator_registry.h"

namespace tf_smddp {
namespace {

using ::tensorflow::AllocationAttributes;
using ::tensorflow::Allocator;
using ::tensorflow::AllocatorFactory;
using ::tensorflow::AllocatorFactoryRegistry;
using ::tensorflow::SubAllocator;

constexpr char kName[] = "tf_smddp";
constexpr int kPriority = 300;  // stock: 100, and 200 with oneDNN

// What TensorFlow's tensors come from, once there is an arena, and what they may have come from.
class Arenas {
 public:
  void Use(std::shared_ptr<Arena> arena, std::size_t small_bytes) {
    small_bytes_.store(small_bytes);
    if (arena != nullptr && Find(arena->data()) == nullptr) {
      // Readers go through the list without a lock. So what was in it stays, and a list is replaced by a
      // longer one: there are as many as times that a job failed and was begun anew in this process.
      auto* longer = new std::vector<std::shared_ptr<Arena>>(*all_.load());
      longer->push_back(arena);
      all_.store(longer);
    }
    current_.store(arena.get());
  }

  Arena* ForBytes(std::size_t bytes) const {
    Arena* current = current_.load(std::memory_order_acquire);
    return bytes > small_bytes_.load(std::memory_order_relaxed) ? current : nullptr;
  }

  Arena* Find(const void* data) const {
    for (const std::shared_ptr<Arena>& arena : *all_.load(std::memory_order_acquire)) {
      if (arena->Contains(data)) return arena.get();
    }
    return nullptr;
  }

 private:
  std::atomic<Arena*> current_{nullptr};
  std::atomic<std::size_t> small_bytes_{0};
  std::atomic<const std::vector<std::shared_ptr<Arena>>*> all_{new std::vector<std::shared_ptr<Arena>>};
};

// Never destroyed: tensors live in daemon threads until the very end.
Arenas& TheArenas() {
  static Arenas* arenas = new Arenas;
  return *arenas;
}

class ArenaAllocator : public Allocator {
 public:
  // `stock` is used for all else, and is TensorFlow's, which never deletes one.
  explicit ArenaAllocator(Allocator* stock) : stock_(stock) {}

  std::string Name() override { return stock_->Name(); }

  void* AllocateRaw(std::size_t alignment, std::size_t num_bytes) override {
    void* data = FromArena(alignment, num_bytes);
    return data != nullptr ? data : stock_->AllocateRaw(alignment, num_bytes);
  }

  void* AllocateRaw(std::size_t alignment, std::size_t num_bytes,
                    const AllocationAttributes& attributes) override {
    void* data = FromArena(alignment, num_bytes);
    return data != nullptr ? data : stock_->AllocateRaw(alignment, num_bytes, attributes);
  }

  void DeallocateRaw(void* data) override {
    Arena* arena = arenas_.Find(data);
    arena != nullptr ? arena->Free(data) : stock_->DeallocateRaw(data);
  }

  bool TracksAllocationSizes() const override { return stock_->TracksAllocationSizes(); }
  bool AllocatesOpaqueHandle() const override { return stock_->AllocatesOpaqueHandle(); }

  std::size_t RequestedSize(const void* data) const override {
    const Arena* arena = arenas_.Find(data);
    return arena != nullptr ? arena->BytesOf(data) : stock_->RequestedSize(data);
  }

  std::size_t AllocatedSize(const void* data) const override {
    const Arena* arena = arenas_.Find(data);
    return arena != nullptr ? arena->BytesOf(data) : stock_->AllocatedSize(data);
  }

  std::int64_t AllocationId(const void* data) const override {
    return arenas_.Find(data) != nullptr ? 0 : stock_->AllocationId(data);
  }

  std::size_t AllocatedSizeSlow(const void* data) const override {
    const Arena* arena = arenas_.Find(data);
    return arena != nullptr ? arena->BytesOf(data) : stock_->AllocatedSizeSlow(data);
  }

  std::optional<tensorflow::AllocatorStats> GetStats() override { return stock_->GetStats(); }
  bool ClearStats() override { return stock_->ClearStats(); }
  tensorflow::AllocatorMemoryType GetMemoryType() const override { return stock_->GetMemoryType(); }

 private:
  void* FromArena(std::size_t alignment, std::size_t num_bytes) const {
    Arena* arena = arenas_.ForBytes(num_bytes);
    return arena != nullptr && alignment <= SpanAllocator::kAlignment ? arena->Allocate(num_bytes) : nullptr;
  }

  Allocator* const stock_;
  const Arenas& arenas_ = TheArenas();
};

std::atomic<ArenaUse> g_use{ArenaUse::kTooLate};

// The registry calls these once, with its lock held.
class Factory : public AllocatorFactory {
 public:
  bool NumaEnabled() override { return Stock()->NumaEnabled(); }
  Allocator* CreateAllocator() override { return new ArenaAllocator(Stock()->CreateAllocator()); }
  SubAllocator* CreateSubAllocator(int numa_node) override {
    g_use = ArenaUse::kBypassed;
    return Stock()->CreateSubAllocator(numa_node);
  }

 private:
  // What there would be without us.
  static AllocatorFactory* Stock() {
    AllocatorFactory* stock = nullptr;
    int priority = 0;
    for (const AllocatorSource& source : AllocatorSources()) {
      if (source.name == kName || (stock != nullptr && source.priority <= priority)) continue;
      stock = source.factory;
      priority = source.priority;
    }
    return stock;
  }
};

bool IsRegistered() {
  const std::vector<AllocatorSource> sources = AllocatorSources();
  return std::any_of(sources.begin(), sources.end(),
                     [](const AllocatorSource& source) { return source.name == kName; });
}

ArenaUse Register() {
  // Another copy of this library in the process would be one registration too many, too.
  if (HasAllocated() || IsRegistered()) return ArenaUse::kTooLate;
  AllocatorFactoryRegistry::singleton()->Register(__FILE__, __LINE__, kName, kPriority, new Factory);
  return ArenaUse::kPossible;
}

// When the library is loaded. Last in the file: it needs what is above.
const bool g_registered = [] {
  g_use = Register();
  return true;
}();

}  // namespace

ArenaUse CanUseArena() { return g_use; }

void UseArena(std::shared_ptr<Arena> arena, std::size_t small_bytes) {
  static_cast<void>(g_registered);
  TheArenas().Use(std::move(arena), small_bytes);
}

}  // namespace tf_smddp
