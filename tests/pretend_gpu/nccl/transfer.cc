#include "tests/pretend_gpu/nccl/transfer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/pretend_gpu/nccl/reduce.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/types.h"

namespace pretend_gpu::nccl {
namespace {

constexpr unsigned char kPoison = 0xFF;  // as of fresh memory
constexpr std::size_t kChunk = 16384;    // elements
constexpr std::size_t kRingChunk = 64;   // with PRETEND_GPU_NCCL_RING

// Reduces `count` elements, from the element `first` on of what each rank has sent.
void TakeReduced(Communicator& communicator, const Part& part, std::uint64_t first, std::uint64_t count) {
  const Operation& operation = part.operation;
  const std::size_t bytes = SizeOf(operation.type);
  const bool averages = operation.op == ncclAvg && IsInteger(operation.type);
  const int op = operation.op == ncclAvg || operation.op == kPreMulSum ? int{ncclSum} : operation.op;
  const auto offsets = OffsetsOf(communicator, part.seat);
  const bool ring = GetSettings().ring;
  const std::size_t longest = ring ? kRingChunk : kChunk;
  const int ranks = communicator.ranks;
  std::vector<char> operand(std::min<std::uint64_t>(longest, count) * bytes);
  for (std::uint64_t done = 0; done < count; done += longest) {
    const std::size_t chunk = std::min<std::uint64_t>(longest, count - done);
    char* const total = part.receive.view + done * bytes;
    const int begin = ring ? static_cast<int>((done / longest + part.calls) % ranks) : 0;
    for (int i = 0; i < ranks; i++) {
      const int rank = (begin + i) % ranks;
      char* const to = i == 0 ? total : operand.data();
      communicator.outboxes[rank]->Take(offsets[rank] + (first + done) * bytes, to, chunk * bytes);
      if (i > 0) Combine(operation.type, op, total, to, chunk);
    }
    if (averages) Divide(operation.type, total, chunk, ranks);
  }
}

// Copies what one party has sent.
void TakeFrom(Communicator& communicator, const Part& part, int party, std::uint64_t to) {
  const std::size_t bytes = SizeOf(part.operation.type);
  communicator.outboxes[RankOf(part.seat.lane, party)]->Take(OffsetsOf(communicator, part.seat)[party],
                                                             part.receive.view + to * bytes,
                                                             part.operation.count * bytes);
}

// Returns by what this rank's elements are multiplied.
std::optional<Scalar> FactorOf(const Communicator& communicator, const Part& part) {
  if (part.operation.op == ncclAvg && !IsInteger(part.operation.type)) {
    return Reciprocal(part.operation.type, communicator.ranks);
  }
  if (!part.pre_mul_sum) return std::nullopt;
  Scalar scalar = part.pre_mul_sum->scalar;
  if (part.scalar.view != nullptr) {
    std::memcpy(scalar.data(), part.scalar.view, SizeOf(part.operation.type));
  }
  return scalar;
}

}  // namespace

Counts CountsOf(const Operation& operation, int rank, int ranks) {
  const std::uint64_t count = operation.count, all = count * static_cast<std::uint64_t>(ranks);
  const bool root = rank == operation.peer;
  switch (operation.kind) {
    case Kind::kAllReduce:
      return {count, count};
    case Kind::kReduce:
      return {count, root ? count : 0};
    case Kind::kBroadcast:
      return {root ? count : 0, count};
    case Kind::kAllGather:
      return {count, all};
    case Kind::kReduceScatter:
      return {all, count};
    case Kind::kSend:
      return {count, 0};
    case Kind::kReceive:
      return {0, count};
    default:
      return {0, 0};
  }
}

std::uint64_t PutSent(Communicator& communicator, const Part& part) {
  const int type = part.operation.type;
  const std::size_t bytes = part.counts.sent * SizeOf(type);
  Outbox& outbox = *communicator.outboxes[communicator.rank];
  const auto factor = Reduces(part.operation.kind) ? FactorOf(communicator, part) : std::nullopt;
  if (!factor || bytes == 0) return outbox.Put(part.send.view, bytes);
  std::vector<char> scaled(part.send.view, part.send.view + bytes);
  Scale(type, scaled.data(), part.counts.sent, *factor);
  return outbox.Put(scaled.data(), bytes);
}

void PoisonReceived(const Part& part) {
  if (part.receive.view == nullptr) return;
  std::memset(part.receive.view, kPoison, part.counts.received * SizeOf(part.operation.type));
}

void TakeReceived(Communicator& communicator, const Part& part) {
  const Operation& operation = part.operation;
  if (operation.count == 0) return;
  switch (operation.kind) {
    case Kind::kReduce:
      if (part.counts.received == 0) return;
      [[fallthrough]];
    case Kind::kAllReduce:
      return TakeReduced(communicator, part, 0, operation.count);
    case Kind::kReduceScatter:
      return TakeReduced(communicator, part, static_cast<std::uint64_t>(communicator.rank) * operation.count,
                         operation.count);
    case Kind::kBroadcast:
      return TakeFrom(communicator, part, operation.peer, 0);
    case Kind::kAllGather:
      for (int rank = 0; rank < communicator.ranks; rank++) {
        TakeFrom(communicator, part, rank, static_cast<std::uint64_t>(rank) * operation.count);
      }
      return;
    case Kind::kReceive:
      return TakeFrom(communicator, part, 0, 0);
    default:
      return;
  }
}

}  // namespace pretend_gpu::nccl
