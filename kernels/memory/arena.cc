#include "kernels/memory/arena.h"

#include <utility>

namespace tf_smddp {

Arena::Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping, std::uint64_t reserve_bytes)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), spans_(reserve_bytes, mapping_->bytes()) {}

Status Arena::Create(std::uint64_t bytes, std::uint64_t reserve_bytes, MappingCache* mappings,
                     std::unique_ptr<Arena>* arena) {
  UniqueFd fd;
  Status status = CreateSharedMemory("smddp-arena", bytes, &fd);
  if (!status.ok()) return status;
  std::shared_ptr<Mapping> mapping;
  status = mappings->Map(fd.get(), bytes, &mapping);
  if (!status.ok()) return status;
  arena->reset(new Arena(std::move(fd), std::move(mapping), reserve_bytes));
  return {};
}

void* Arena::Allocate(std::uint64_t bytes) {
  const std::uint64_t offset = spans_.Allocate(bytes);
  return offset == SpanAllocator::kNone ? nullptr : mapping_->data() + offset;
}

void Arena::Free(void* data, std::uint64_t bytes) {
  if (quarantined_.load()) return;
  spans_.Free(static_cast<std::uint64_t>(static_cast<std::byte*>(data) - mapping_->data()), bytes);
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
