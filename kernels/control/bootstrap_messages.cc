#include "kernels/control/bootstrap_messages.h"

#include <cstring>
#include <string>

#include "kernels/common/utf8.h"

namespace tf_smddp {
namespace {

Status SettingDiffers(const char* name, int rank, std::int64_t theirs, std::int64_t ours) {
  return Internal(std::string(name) + " is " + std::to_string(theirs) + " on rank " + std::to_string(rank) +
                  " but " + std::to_string(ours) + " on rank 0; give all ranks the same value");
}

}  // namespace

Hello MakeHello(const Config& config, std::uint64_t token, std::uint64_t arena_bytes) {
  return {kHelloMagic,
          token,
          config.local_rank,
          config.local_size,
          config.bucket_cap_bytes,
          config.small_bytes,
          config.chunk_bytes,
          config.table_slots,
          config.deterministic ? 1 : 0,
          arena_bytes};
}

StatusMessage MakeStatusMessage(const Status& status) {
  StatusMessage message = {};
  message.ok = status.ok() ? 1 : 0;
  CopyUtf8(status.message(), message.text, sizeof message.text);
  return message;
}

Status StatusOf(const StatusMessage& message) {
  if (message.ok != 0) return {};
  return Internal(std::string(message.text, ::strnlen(message.text, sizeof message.text)));
}

Status CheckHello(const Hello& theirs, const Hello& ours) {
  if (theirs.magic != kHelloMagic) {
    return Internal(
        "a process with another version of tf_smddp connected; install the same version for all ranks");
  }
  if (theirs.size != ours.size) return SettingDiffers("SMDDP_SIZE", theirs.rank, theirs.size, ours.size);
  if (theirs.rank < 1 || theirs.rank >= ours.size) {
    return Internal("a process connected as rank " + std::to_string(theirs.rank) + " of " +
                    std::to_string(ours.size) + "; give each rank its own SMDDP_RANK below SMDDP_SIZE");
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
  if (theirs.deterministic != ours.deterministic) {
    return SettingDiffers("SMDDP_DETERMINISTIC", theirs.rank, theirs.deterministic, ours.deterministic);
  }
  return {};
}

}  // namespace tf_smddp
