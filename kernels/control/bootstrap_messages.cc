#include "kernels/control/bootstrap_messages.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace tf_smddp {
namespace {

Status SettingDiffers(const char* name, int rank, std::int64_t theirs, std::int64_t ours) {
  return Internal(std::string(name) + " is " + std::to_string(theirs) + " on " + "rank " +
                  std::to_string(rank) + " but " + std::to_string(ours) +
                  " on rank 0; give all ranks the same value");
}

}  // namespace

Hello MakeHello(const Config& config, std::uint64_t token, std::uint64_t arena_bytes) {
  return {kHelloMagic,
          token,
          config.rank,
          config.size,
          config.bucket_cap_bytes,
          config.small_bytes,
          config.chunk_bytes,
          config.table_slots,
          arena_bytes};
}

Verdict MakeVerdict(const Status& status) {
  Verdict verdict = {};
  verdict.ok = status.ok() ? 1 : 0;
  std::memcpy(verdict.text, status.message().data(),
              std::min(status.message().size(), sizeof verdict.text - 1));
  return verdict;
}

Status StatusOf(const Verdict& verdict) {
  if (verdict.ok != 0) return {};
  return Internal(std::string(verdict.text, ::strnlen(verdict.text, sizeof verdict.text)));
}

Status CheckHello(const Hello& theirs, const Hello& ours) {
  if (theirs.magic != kHelloMagic) {
    return Internal(
        "a process connected that runs another version of tf_smddp; install one version for all ranks");
  }
  if (theirs.size != ours.size) return SettingDiffers("SMDDP_SIZE", theirs.rank, theirs.size, ours.size);
  if (theirs.rank < 1 || theirs.rank >= ours.size) {
    return Internal("a process connected as rank " + std::to_string(theirs.rank) + " of " +
                    std::to_string(ours.size));
  }
  if (theirs.bucket_cap_bytes != ours.bucket_cap_bytes) {
    return SettingDiffers("SMDDP_BUCKET_CAP_BYTES", theirs.rank, theirs.bucket_cap_bytes,
                          ours.bucket_cap_bytes);
  }
  if (theirs.small_bytes != ours.small_bytes) {
    return SettingDiffers("SMDDP_SMALL_BYTES", theirs.rank, theirs.small_bytes, ours.small_bytes);
  }
  if (theirs.chunk_bytes != ours.chunk_bytes) {
    return SettingDiffers("SMDDP_CHUNK_BYTES", theirs.rank, theirs.chunk_bytes, ours.chunk_bytes);
  }
  if (theirs.table_slots != ours.table_slots) {
    return SettingDiffers("SMDDP_TABLE_SLOTS", theirs.rank, theirs.table_slots, ours.table_slots);
  }
  return {};
}

}  // namespace tf_smddp
