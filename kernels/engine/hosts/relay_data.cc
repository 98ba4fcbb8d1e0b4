#include "kernels/engine/hosts/relay_data.h"

#include <algorithm>
#include <cstdint>

#include "kernels/collectives/host_reduction.h"
#include "kernels/common/types.h"

namespace tf_smddp {
namespace {

// The head gets at most this of all hosts together, in bytes.
constexpr std::uint64_t kMostAtHead = 64 << 10;

bool IsBarrier(const Manifest& manifest) { return manifest.operation.kind == CollectiveKind::kBarrier; }

std::uint64_t BytesOf(const Manifest& manifest) {
  return IsBarrier(manifest) ? 0 : manifest.count * DTypeBytes(manifest.operation.dtype);
}

// Returns the address of what a member has at an offset of its arena; nullptr when the job was aborted, since
// it has nothing there.
std::byte* Find(Communicator* communicator, MemberId member, std::uint64_t offset, const Manifest& manifest) {
  const std::byte* const found =
      communicator->group().view(member.value()).Resolve(offset, BytesOf(manifest));
  if (found == nullptr) {
    communicator->job().Abort("shared memory is corrupt: invalid address for " + DescribeManifest(manifest));
  }
  return const_cast<std::byte*>(found);
}

}  // namespace

bool GoesWithReport(const Communicator& communicator, const Manifest& manifest) {
  if (IsBarrier(manifest)) return true;
  const Operation& operation = manifest.operation;
  // A tensor that crosses in 16 bits is divided before it does, by the number of ranks that take part. The
  // hosts do not know that number yet.
  if (!ReducesByHosts(operation) || TypeOnWire(operation) != operation.dtype) return false;
  const auto small = static_cast<std::uint64_t>(communicator.config().small_bytes);
  const std::uint64_t most = std::min(small, kMostAtHead / communicator.hosts().size());
  return manifest.count <= most / DTypeBytes(operation.dtype);
}

std::string PartialResult(Communicator* communicator, Place place, const Manifest& manifest,
                          MemberMask arrived) {
  if (BytesOf(manifest) == 0) return "";
  const bool broadcast = manifest.operation.kind == CollectiveKind::kBroadcast;
  std::vector<const void*> inputs;
  for (const MemberId member : arrived) {
    const RankId rank(communicator->group().rank_of(member.value()));
    if (broadcast && rank != manifest.operation.root) continue;
    const Cell cell = communicator->group().table().CellOf(place, member.value());
    inputs.push_back(Find(communicator, member, cell.input_offset, manifest));
    if (inputs.back() == nullptr) return "";
  }
  if (inputs.empty()) return "";
  std::string partial(BytesOf(manifest), '\0');
  ReduceOnHost(manifest.operation, communicator->size(), inputs.data(), static_cast<int>(inputs.size()),
               partial.data(), manifest.count);
  return partial;
}

std::string ResultOf(const Manifest& manifest, int num_ranks, const std::vector<std::string>& partials) {
  std::string result(BytesOf(manifest), '\0');
  std::vector<const void*> from;
  for (const std::string& partial : partials) {
    if (partial.size() == result.size()) from.push_back(partial.data());
  }
  if (result.empty() || from.empty()) return result;
  ReducePartials(manifest.operation, num_ranks, from.data(), static_cast<int>(from.size()), result.data(),
                 manifest.count);
  return result;
}

void WriteOutputs(Communicator* communicator, Place place, const Manifest& manifest, MemberMask arrived,
                  const std::string& result) {
  if (result.empty()) return;
  std::vector<void*> outputs;
  for (const MemberId member : arrived) {
    const Cell cell = communicator->group().table().CellOf(place, member.value());
    outputs.push_back(Find(communicator, member, cell.output_offset, manifest));
    if (outputs.back() == nullptr) return;
  }
  WriteResult(manifest.operation, result.data(), outputs.data(), static_cast<int>(outputs.size()),
              manifest.count, /*past_cache=*/false);
}

}  // namespace tf_smddp
