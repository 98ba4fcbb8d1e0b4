#include "kernels/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tf_smddp {
namespace {

// Less than this between two tensors is not worth a system call.
constexpr std::uint64_t kLeastGivenBack = 64 << 10;

// Giving back 256 MiB takes about 20 ms.
constexpr std::uint64_t kMostAtOnce = 256 << 20;
constexpr std::uint64_t kNoEnd = ~std::uint64_t{0};

}  // namespace

Arena::Arena(UniqueFd fd, std::shared_ptr<Mapping> mapping)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), spans_(0, mapping_->bytes()) {
  WatchForks(this);
}

Arena::~Arena() { UnwatchForks(this); }

Status Arena::Create(std::uint64_t bytes, MappingCache* mappings, std::shared_ptr<Arena>* arena) {
  UniqueFd fd;
  Status status = CreateSharedMemory("smddp-arena", bytes, &fd);
  if (!status.ok()) return status;
  std::shared_ptr<Mapping> mapping;
  status = mappings->Map(fd.get(), bytes, &mapping);
  if (!status.ok()) return status;
  // Where the system allows huge pages for shared memory on request. Else it says no, which is no error.
  ::madvise(mapping->data(), mapping->bytes(), MADV_HUGEPAGE);
  arena->reset(new Arena(std::move(fd), std::move(mapping)));
  return {};
}

void* Arena::Allocate(std::uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  if (closed_ || in_child_) return nullptr;
  const std::uint64_t offset = spans_.Allocate(bytes);
  if (offset == SpanAllocator::kNone) {
    ++refused_;
    return nullptr;
  }
  peak_bytes_ = std::max(peak_bytes_, spans_.used_bytes());
  return mapping_->data() + offset;
}

void Arena::Free(void* data) {
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(data) - mapping_->data());
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (quarantines_ > 0 && !over_) {
      withheld_.push_back(offset);
      return;
    }
    spans_.Free(offset);
    if (!closed_) return;
  }
  GiveBack(/*any=*/true, kNoEnd);
}

std::uint64_t Arena::BytesOf(const void* data) const {
  std::lock_guard<std::mutex> lock(mu_);
  return spans_.LengthOf(OffsetOf(data, 0));
}

void Arena::Quarantine() {
  std::lock_guard<std::mutex> lock(mu_);
  ++quarantines_;
}

void Arena::Release() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--quarantines_ == 0) FreeWithheld();
}

void Arena::FreeWithheld() {
  for (const std::uint64_t offset : withheld_) spans_.Free(offset);
  withheld_.clear();
}

bool Arena::Trim() {
  if (!GiveBack(/*any=*/false, kMostAtOnce)) return false;
  std::lock_guard<std::mutex> lock(mu_);
  spans_.Tick();
  return true;
}

void Arena::Close(bool for_good) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    closed_ = true;
    over_ |= for_good;
    if (over_) FreeWithheld();
  }
  GiveBack(/*any=*/true, kNoEnd);
}

void Arena::Open() {
  std::lock_guard<std::mutex> lock(mu_);
  closed_ = over_;
}

bool Arena::quarantined() const {
  std::lock_guard<std::mutex> lock(mu_);
  return quarantines_ > 0;
}

// False when it stopped at `most_bytes`. A span is in use while its memory goes.
bool Arena::GiveBack(bool any, std::uint64_t most_bytes) {
  if (in_child_) return true;  // the memory is the parent's
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t given_back = 0;
  std::unique_lock<std::mutex> lock(mu_);
  std::uint64_t offset, length;
  while (spans_.TakeIdle(kLeastGivenBack, any, &offset, &length)) {
    lock.unlock();
    const std::uint64_t begin = (offset + page - 1) / page * page;
    const std::uint64_t end = (offset + length) / page * page;
    // Where the system refuses, the memory stays; init() has said so.
    if (end > begin) static_cast<void>(PunchHole(fd_.get(), begin, end - begin));
    lock.lock();
    spans_.FreeWithoutMemory(offset);
    given_back += std::min(length, kMostAtOnce);
    if (given_back >= most_bytes) return false;
  }
  return true;
}

std::uint64_t Arena::OffsetOf(const void* data, std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(mapping_->data());
  if (address < base || address - base >= mapping_->bytes() || bytes > mapping_->bytes() - (address - base)) {
    return kNotInArena;
  }
  return address - base;
}

std::uint64_t Arena::used_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  return spans_.used_bytes();
}

std::uint64_t Arena::peak_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  return peak_bytes_;
}

std::uint64_t Arena::refused() const {
  std::lock_guard<std::mutex> lock(mu_);
  return refused_;
}

void Arena::AfterForkInChild() {
  // At the same address, so that tensors stay where they are. In a child's child it is private already.
  if (!in_child_.exchange(true)) {
    ::mmap(mapping_->data(), mapping_->bytes(), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_.get(), 0);
  }
  mu_.unlock();
}

}  // namespace tf_smddp
