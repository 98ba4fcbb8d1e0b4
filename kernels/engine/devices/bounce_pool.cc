#include "kernels/engine/devices/bounce_pool.h"

#include <algorithm>
#include <utility>

namespace tf_smddp {
namespace {

constexpr std::uint64_t kSlabBytes = std::uint64_t{16} << 20;  // at least

std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

BouncePool::~BouncePool() {
  for (const std::unique_ptr<Slab>& slab : slabs_) {
    slab->kind->Unpin(slab->data);
    arena_->Free(slab->data);
  }
}

Status BouncePool::Allocate(MemoryKind* kind, std::uint64_t bytes, void** span) {
  if (!kind->pins()) {
    *span = arena_->Allocate(bytes);
    return {};
  }
  *span = nullptr;
  std::lock_guard<std::mutex> lock(mu_);
  if (!arena_->quarantined()) FreeQuarantined();
  for (const std::unique_ptr<Slab>& slab : slabs_) {
    const std::uint64_t offset = slab->spans.Allocate(bytes);
    if (offset == SpanAllocator::kNone) continue;
    *span = slab->data + offset;
    return {};
  }
  const std::uint64_t needed = RoundUp(std::max<std::uint64_t>(bytes, 1), SpanAllocator::kAlignment);
  std::uint64_t slab_bytes = std::max(needed, kSlabBytes);
  void* data = arena_->Allocate(slab_bytes);
  if (data == nullptr && slab_bytes > needed) data = arena_->Allocate(slab_bytes = needed);
  if (data == nullptr) return {};
  Status status = kind->Pin(data, slab_bytes);
  if (!status.ok()) {
    arena_->Free(data);
    return status;
  }
  slabs_.push_back(std::unique_ptr<Slab>(
      new Slab{static_cast<std::byte*>(data), slab_bytes, kind, SpanAllocator(0, slab_bytes)}));
  *span = slabs_.back()->data + slabs_.back()->spans.Allocate(bytes);
  return {};
}

void BouncePool::Free(void* span) {
  std::lock_guard<std::mutex> lock(mu_);
  Slab* const slab = SlabOf(span);
  if (slab == nullptr) return arena_->Free(span);
  quarantined_.push_back(span);
  if (!arena_->quarantined()) FreeQuarantined();
}

BouncePool::Slab* BouncePool::SlabOf(const void* span) {
  for (const std::unique_ptr<Slab>& slab : slabs_) {
    if (span >= slab->data && span < slab->data + slab->bytes) return slab.get();
  }
  return nullptr;
}

void BouncePool::FreeQuarantined() {
  for (void* const span : quarantined_) {
    Slab* const slab = SlabOf(span);
    slab->spans.Free(static_cast<std::uint64_t>(static_cast<std::byte*>(span) - slab->data));
  }
  quarantined_.clear();
}

}  // namespace tf_smddp
