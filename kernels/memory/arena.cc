#include "kernels/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tf_smddp {
namespace {

// Free spans below this length keep their memory, since a system call for each would cost too much.
constexpr std::uint64_t kLeastReturned = 64 << 10;

// Memory is returned in pieces that end at multiples of this. A piece cannot be allocated meanwhile.
constexpr std::uint64_t kPiece = 16 << 20;

// The limit for one call of Trim. Returning 256 MiB takes about 20 ms.
constexpr std::uint64_t kMostAtOnce = 256 << 20;
constexpr std::uint64_t kNoLimitAtOnce = ~std::uint64_t{0};

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
  // Uses huge pages if the system allows them for shared memory on request. It need not, so errors are
  // ignored.
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

Status Arena::FullError(const std::string& what) const {
  return Internal("the arena is full (" + std::to_string(used_bytes()) + " bytes in use): no room for " +
                  what + "; raise SMDDP_ARENA_BYTES");
}

void Arena::Free(void* data) {
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(data) - mapping_->data());
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (quarantines_ > 0 && !closed_for_good_) {
      quarantined_.push_back(offset);
      return;
    }
    spans_.Free(offset);
    if (!closed_) return;
  }
  ReturnMemory(/*any=*/true, kNoLimitAtOnce);
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
  if (--quarantines_ == 0) FreeQuarantined();
}

void Arena::FreeQuarantined() {
  for (const std::uint64_t offset : quarantined_) spans_.Free(offset);
  quarantined_.clear();
}

bool Arena::Trim() {
  if (!ReturnMemory(/*any=*/false, kMostAtOnce)) return false;
  std::lock_guard<std::mutex> lock(mu_);
  spans_.Tick();
  return true;
}

void Arena::Close(bool for_good) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    closed_ = true;
    closed_for_good_ |= for_good;
    if (closed_for_good_) FreeQuarantined();
  }
  ReturnMemory(/*any=*/true, kNoLimitAtOnce);
}

void Arena::Open() {
  std::lock_guard<std::mutex> lock(mu_);
  closed_ = closed_for_good_;
}

bool Arena::quarantined() const {
  std::lock_guard<std::mutex> lock(mu_);
  return quarantines_ > 0;
}

// Returns the memory of idle spans or, with `any`, of all free spans to the system. Returns false when it has
// stopped at `most_bytes`. The lock is not held while the memory of a piece is returned.
bool Arena::ReturnMemory(bool any, std::uint64_t most_bytes) {
  if (in_child_) return true;  // the memory belongs to the parent
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t returned = 0;
  std::unique_lock<std::mutex> lock(mu_);
  std::uint64_t offset, length;
  while (spans_.TakeIdle(kLeastReturned, kPiece, any, &offset, &length)) {
    lock.unlock();
    const std::uint64_t begin = (offset + page - 1) / page * page;
    const std::uint64_t end = (offset + length) / page * page;
    // If the system refuses, the memory stays allocated; init() has written a warning about it.
    if (end > begin) static_cast<void>(PunchHole(fd_.get(), begin, end - begin));
    lock.lock();
    spans_.FreeWithoutMemory(offset);
    returned += length;
    if (returned >= most_bytes) return false;
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
  // The same address, so that tensors stay valid. In a child of a child the memory is private already.
  if (!in_child_.exchange(true)) {
    ::mmap(mapping_->data(), mapping_->bytes(), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_.get(), 0);
  }
  mu_.unlock();
}

}  // namespace tf_smddp
