#include "kernels/memory/arena.h"

#include <utility>

namespace tf_smddp {

Arena::Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), spans_(0, mapping_->bytes()) {}

Status Arena::Create(std::uint64_t bytes, MappingCache* mappings, std::unique_ptr<Arena>* arena) {
  UniqueFd fd;
  Status status = CreateSharedMemory("smddp-arena", bytes, &fd);
  if (!status.ok()) return status;
  std::shared_ptr<Mapping> mapping;
  status = mappings->Map(fd.get(), bytes, &mapping);
  if (!status.ok()) return status;
  arena->reset(new Arena(std::move(fd), std::move(mapping)));
  return {};
}

void* Arena::Allocate(std::uint64_t bytes) {
  const std::uint64_t offset = spans_.Allocate(bytes);
  return offset == SpanAllocator::kNone ? nullptr : mapping_->data() + offset;
}

void Arena::Free(void* data, std::uint64_t bytes) {
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(data) - mapping_->data());
  std::lock_guard<std::mutex> lock(mu_);
  if (quarantines_ > 0) {
    withheld_.emplace_back(offset, bytes);
  } else {
    spans_.Free(offset, bytes);
  }
}

void Arena::Quarantine() {
  std::lock_guard<std::mutex> lock(mu_);
  ++quarantines_;
}

void Arena::Release() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--quarantines_ > 0) return;
  for (const auto& [offset, bytes] : withheld_) spans_.Free(offset, bytes);
  withheld_.clear();
}

std::uint64_t Arena::OffsetOf(const void* data, std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(mapping_->data());
  if (address < base || address - base > mapping_->bytes() || bytes > mapping_->bytes() - (address - base)) {
    return kNotInArena;
  }
  return address - base;
}

}  // namespace tf_smddp
