#include "kernels/tf/arena_allocator.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/process/arenas.h"
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
  // The allocator that there would be without us.
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

ArenaUse CanUseArena() {
  static_cast<void>(g_registered);
  return g_use;
}

}  // namespace tf_smddp
