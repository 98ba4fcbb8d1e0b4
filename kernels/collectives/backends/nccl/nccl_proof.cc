#include "kernels/collectives/backends/nccl/nccl_proof.h"

#include <algorithm>
#include <string>

namespace tf_smddp::nccl {
namespace {

constexpr std::size_t kNumbers = (1 << 20) / sizeof(std::uint32_t);  // in each part

// Rank r adds r + 1 times this at place `i`. Numbers that are shifted by a power of two are found.
std::uint32_t Weight(std::size_t i) { return static_cast<std::uint32_t>(i % 1021 + 1); }

// 1 + 2 + … + num_ranks. All sums are modulo 2^32.
std::uint32_t AddedByAll(int num_ranks) {
  const auto ranks = static_cast<std::uint64_t>(num_ranks);
  return static_cast<std::uint32_t>(ranks * (ranks + 1) / 2);
}

// The number at place `i` of those that `from` sends to `to`.
std::uint32_t SentBy(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from) * 0x9e3779b1u + static_cast<std::uint32_t>(to) * 0x85ebca77u +
         static_cast<std::uint32_t>(i) + 1;
}

Status Wrong(const std::string& what, std::size_t i, std::uint32_t is, std::uint32_t should) {
  return Internal("NCCL gives wrong results: element " + std::to_string(i) + " of " + what + " is " +
                  std::to_string(is) + ", and should be " + std::to_string(should));
}

}  // namespace

Proof::Proof(const Place& place, int num_ranks, int rank)
    : place_(place),
      num_ranks_(num_ranks),
      rank_(rank),
      count_(std::max<std::size_t>(kNumbers / static_cast<std::size_t>(num_ranks), 1)),
      numbers_(kNumbers + 2 * count_ * static_cast<std::size_t>(num_ranks)) {}

Proof::~Proof() {
  const cuda::CurrentContext current(place_.driver, place_.context);
  // There is nothing to be done about errors here.
  if (pinned_) static_cast<void>(place_.driver->MemHostUnregister(numbers_.data()));
  if (memory_ != 0) static_cast<void>(place_.driver->MemFree(memory_));
}

Status Proof::Open(const Place& place, int num_ranks, int rank, std::shared_ptr<Proof>* opened) {
  std::shared_ptr<Proof> opening(new Proof(place, num_ranks, rank));
  const cuda::CurrentContext current(place.driver, place.context);
  Status status =
      place.driver->Check("cuMemAlloc", place.driver->MemAlloc(&opening->memory_, opening->bytes()));
  if (!status.ok()) return status;
  status = place.driver->Check(
      "cuMemHostRegister",
      place.driver->MemHostRegister(opening->numbers_.data(), opening->bytes(), cuda::kHostRegisterPortable));
  if (!status.ok()) return status;
  opening->pinned_ = true;
  *opened = std::move(opening);
  return {};
}

Status Proof::Begin(cuda::Stream stream) {
  for (std::size_t i = 0; i < kNumbers; ++i) numbers_[i] = static_cast<std::uint32_t>(rank_ + 1) * Weight(i);
  for (std::size_t i = 0; i < count_ * static_cast<std::size_t>(num_ranks_); ++i) {
    numbers_[PartAt(1) + i] = SentBy(rank_, static_cast<int>(i / count_), i % count_);
    numbers_[PartAt(2) + i] = 0;
  }
  const cuda::CurrentContext current(place_.driver, place_.context);
  return place_.driver->Check("cuMemcpyHtoDAsync",
                              place_.driver->MemcpyHtoDAsync(memory_, numbers_.data(), bytes(), stream));
}

std::size_t Proof::PartAt(int part) const {
  return part == 0 ? 0 : kNumbers + static_cast<std::size_t>((part - 1) * num_ranks_) * count_;
}

void* Proof::AddressOf(int part, int peer) const {
  const std::size_t at = PartAt(part) + static_cast<std::size_t>(peer) * count_;
  return reinterpret_cast<void*>(memory_ + at * sizeof(std::uint32_t));
}

std::vector<NcclCall> Proof::Calls() const {
  NcclCall sum;
  sum.send = sum.receive = AddressOf(0, 0);
  sum.count = kNumbers;
  sum.type = DataType::kUInt32;
  std::vector<NcclCall> calls = {sum};
  for (int peer = 0; peer < num_ranks_; ++peer) {
    NcclCall exchange;
    exchange.count = count_;
    exchange.type = DataType::kUInt32;
    exchange.peer = peer;
    exchange.function = NcclCall::Function::kSend;
    exchange.send = AddressOf(1, peer);
    calls.push_back(exchange);
    exchange.function = NcclCall::Function::kReceive;
    exchange.receive = AddressOf(2, peer);
    calls.push_back(exchange);
  }
  return calls;
}

Status Proof::End(cuda::Stream stream) {
  const cuda::CurrentContext current(place_.driver, place_.context);
  return place_.driver->Check("cuMemcpyDtoHAsync",
                              place_.driver->MemcpyDtoHAsync(numbers_.data(), memory_, bytes(), stream));
}

Status Proof::Compare() const {
  const std::uint32_t all = AddedByAll(num_ranks_);
  for (std::size_t i = 0; i < kNumbers; ++i) {
    const std::uint32_t should = all * Weight(i);
    if (numbers_[i] != should) return Wrong("a sum", i, numbers_[i], should);
  }
  for (std::size_t i = 0; i < count_ * static_cast<std::size_t>(num_ranks_); ++i) {
    const auto from = static_cast<int>(i / count_);
    const std::uint32_t is = numbers_[PartAt(2) + i], should = SentBy(from, rank_, i % count_);
    if (is != should) return Wrong("an all-to-all", i, is, should);
  }
  return {};
}

void Proof::Check(const Status& reached) {
  Status outcome = reached.ok() ? Compare() : reached;
  std::lock_guard<std::mutex> lock(mu_);
  outcome_ = std::move(outcome);
  checked_ = true;
}

bool Proof::checked(Status* outcome) const {
  std::lock_guard<std::mutex> lock(mu_);
  if (checked_) *outcome = outcome_;
  return checked_;
}

}  // namespace tf_smddp::nccl
