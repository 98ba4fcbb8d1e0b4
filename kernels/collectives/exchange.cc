#include "kernels/collectives/exchange.h"

#include <algorithm>
#include <cstring>

namespace tf_smddp {
namespace {

// Copies the bytes of [from_begin, from_begin + from_count) that are also in [begin, begin + count). Byte b
// of that range is source[b - source_base], and goes to target[b - target_base].
void CopyOverlap(const std::byte* source, std::uint64_t source_base, std::byte* target,
                 std::uint64_t target_base, std::uint64_t from_begin, std::uint64_t from_count,
                 std::uint64_t begin, std::uint64_t count) {
  const std::uint64_t first = std::max(from_begin, begin);
  const std::uint64_t end = std::min(from_begin + from_count, begin + count);
  if (first < end) std::memcpy(target + (first - target_base), source + (first - source_base), end - first);
}

}  // namespace

std::vector<std::int64_t> Exchange::OutputRows(const Call& call, ParticipantId participant) const {
  std::vector<std::int64_t> rows;
  for (const ParticipantId sender : FirstIds<ParticipantId>(call.num_ranks)) {
    rows.push_back(static_cast<std::int64_t>(RowsFor(call, sender, participant).count));
  }
  return rows;
}

Shard Exchange::PartFor(const Call& call, ParticipantId sender, ParticipantId receiver) const {
  const Shard rows = RowsFor(call, sender, receiver);
  return {rows.begin * call.row_count, rows.count * call.row_count};
}

std::uint64_t Exchange::OutputCount(const Call& call, ParticipantId participant) const {
  std::uint64_t rows = 0;
  for (const ParticipantId sender : FirstIds<ParticipantId>(call.num_ranks))
    rows += RowsFor(call, sender, participant).count;
  return rows * call.row_count;
}

void Exchange::Direct(const Call& call, ParticipantId self, const void* const* inputs, void* const* outputs,
                      std::uint64_t begin, std::uint64_t count) const {
  const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
  const std::uint64_t row_bytes = call.row_count * element_bytes;
  std::uint64_t start = 0;  // of the sender's part of the output, in bytes
  for (const ParticipantId sender : FirstIds<ParticipantId>(call.num_ranks)) {
    const Shard rows = RowsFor(call, sender, self);
    const auto* source = static_cast<const std::byte*>(inputs[sender.index()]) + rows.begin * row_bytes;
    CopyOverlap(source, start, static_cast<std::byte*>(outputs[self.index()]), 0, start,
                rows.count * row_bytes, begin * element_bytes, count * element_bytes);
    start += rows.count * row_bytes;
  }
}

std::uint64_t Exchange::NumChunks(const Call& call, std::uint64_t capacity) const {
  std::uint64_t longest = 0;
  for (const ParticipantId each : FirstIds<ParticipantId>(call.num_ranks)) {
    longest = std::max(longest, InputCount(call, each));
  }
  return (longest + capacity - 1) / capacity;
}

void Exchange::StageIn(const Call& call, const StagedChunk& chunk) const {
  const std::uint64_t input_count = InputCount(call, chunk.self);
  const std::uint64_t begin = chunk.index * chunk.capacity;
  if (begin >= input_count) return;
  const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
  std::memcpy(chunk.windows[chunk.self.index()], chunk.input + begin * element_bytes,
              std::min(chunk.capacity, input_count - begin) * element_bytes);
}

void Exchange::StageOut(const Call& call, const StagedChunk& chunk) const {
  const std::uint64_t element_bytes = DTypeBytes(call.operation.dtype);
  const std::uint64_t row_bytes = call.row_count * element_bytes;
  const std::uint64_t begin = chunk.index * chunk.capacity * element_bytes;
  std::uint64_t start = 0;  // of the sender's part of the output, in bytes
  for (const ParticipantId sender : FirstIds<ParticipantId>(call.num_ranks)) {
    const Shard rows = RowsFor(call, sender, chunk.self);
    const bool own = sender == chunk.self;
    const std::uint64_t from = rows.begin * row_bytes;
    CopyOverlap(own ? chunk.input : chunk.windows[sender.index()], own ? 0 : begin, chunk.output + start,
                from, from, rows.count * row_bytes, begin, chunk.capacity * element_bytes);
    start += rows.count * row_bytes;
  }
}

}  // namespace tf_smddp
