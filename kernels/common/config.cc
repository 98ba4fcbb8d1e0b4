#include "kernels/common/config.h"

#include <cerrno>
#include <cstdlib>
#include <string>

namespace tf_smddp {
namespace {

using Lookup = std::function<const char*(const char*)>;

Status ReadInteger(const Lookup& lookup, const char* name, std::int64_t* value, bool* found = nullptr) {
  const char* text = lookup(name);
  if (found != nullptr) *found = text != nullptr;
  if (text == nullptr) return {};
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0) {
    return InvalidArgument(std::string(name) + "='" + text + "' is not an integer");
  }
  *value = parsed;
  return {};
}

Status ReadInt(const Lookup& lookup, const char* name, int* value, bool* found = nullptr) {
  std::int64_t wide = *value;
  Status status = ReadInteger(lookup, name, &wide, found);
  if (!status.ok()) return status;
  if (wide < -2147483648LL || wide > 2147483647LL) {
    return InvalidArgument(std::string(name) + "='" + lookup(name) + "' is too large");
  }
  *value = static_cast<int>(wide);
  return {};
}

Status ReadLogLevel(const Lookup& lookup, int* level) {
  constexpr const char* kNames[] = {"debug", "info", "warning", "error", "none"};
  const char* text = lookup("SMDDP_LOG_LEVEL");
  if (text == nullptr) return {};
  for (int i = 0; i < 5; ++i) {
    if (std::string(text) == kNames[i]) {
      *level = i;
      return {};
    }
  }
  return InvalidArgument(std::string("SMDDP_LOG_LEVEL='") + text +
                         "' is not one of debug, info, warning, error, none");
}

// Our launcher sets all of these, or none of them is set.
Status ReadRanks(const Lookup& lookup, Config* config) {
  bool has_rank = false, has_size = false, has_local_rank = false, has_local_size = false;
  Status status = ReadInt(lookup, "SMDDP_RANK", &config->rank, &has_rank);
  if (status.ok()) status = ReadInt(lookup, "SMDDP_SIZE", &config->size, &has_size);
  if (status.ok()) status = ReadInt(lookup, "SMDDP_LOCAL_RANK", &config->local_rank, &has_local_rank);
  if (status.ok()) status = ReadInt(lookup, "SMDDP_LOCAL_SIZE", &config->local_size, &has_local_size);
  if (!status.ok()) return status;
  if (has_rank != has_size) {
    return InvalidArgument(std::string(has_rank ? "SMDDP_RANK" : "SMDDP_SIZE") + " is set but " +
                           (has_rank ? "SMDDP_SIZE" : "SMDDP_RANK") +
                           " is not; set both, or start the ranks with smddprun");
  }
  if (!has_local_rank) config->local_rank = config->rank;
  if (!has_local_size) config->local_size = config->size;
  if (const char* directory = lookup("SMDDP_RENDEZVOUS")) config->rendezvous = directory;
  return {};
}

Status CheckRange(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(std::string(name) + "=" + std::to_string(value) + " is outside [" +
                         std::to_string(low) + ", " + std::to_string(high) + "]");
}

Status CheckMultiple(const char* name, std::int64_t value, std::int64_t unit) {
  if (value % unit == 0) return {};
  return InvalidArgument(std::string(name) + "=" + std::to_string(value) + " is not a multiple of " +
                         std::to_string(unit));
}

}  // namespace

Status ValidateConfig(const Config& config) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const Status checks[] = {
      CheckRange("SMDDP_SIZE", config.size, 1, 1 << 20),
      CheckRange("SMDDP_RANK", config.rank, 0, config.size - 1),
      CheckRange("SMDDP_LOCAL_SIZE", config.local_size, 1, kMaxLocalRanks),
      CheckRange("SMDDP_LOCAL_RANK", config.local_rank, 0, config.local_size - 1),
      CheckRange("SMDDP_BUCKET_CAP_BYTES", config.bucket_cap_bytes, 128, kGiB - 128),
      CheckMultiple("SMDDP_BUCKET_CAP_BYTES", config.bucket_cap_bytes, 128),
      CheckRange("SMDDP_SMALL_BYTES", config.small_bytes, 0, 1 << 20),
      CheckRange("SMDDP_CHUNK_BYTES", config.chunk_bytes, 128, 64 << 20),
      CheckMultiple("SMDDP_CHUNK_BYTES", config.chunk_bytes, 128),
      CheckRange("SMDDP_TABLE_SLOTS", config.table_slots, 16, 1 << 22),
      CheckRange("SMDDP_ARENA_BYTES", config.arena_bytes, 1 << 20, kGiB << 12),
      CheckRange("SMDDP_BOOTSTRAP_TIMEOUT", config.bootstrap_timeout_seconds, 1, 86400),
      CheckRange("SMDDP_LOG_LEVEL", config.log_level, 0, 4),
  };
  for (const Status& check : checks) {
    if (!check.ok()) return check;
  }
  if ((config.table_slots & (config.table_slots - 1)) != 0) {
    return InvalidArgument("SMDDP_TABLE_SLOTS=" + std::to_string(config.table_slots) +
                           " is not a power of two");
  }
  if (config.local_size != config.size || config.local_rank != config.rank) {
    return InvalidArgument("SMDDP_LOCAL_RANK=" + std::to_string(config.local_rank) +
                           " of SMDDP_LOCAL_SIZE=" + std::to_string(config.local_size) +
                           " differ from SMDDP_RANK=" + std::to_string(config.rank) + " of SMDDP_SIZE=" +
                           std::to_string(config.size) + ": this version runs the ranks of one host only");
  }
  if (config.size > 1 && config.rendezvous.empty()) {
    return InvalidArgument("SMDDP_RENDEZVOUS is not set though SMDDP_SIZE=" + std::to_string(config.size) +
                           "; start the ranks with smddprun, or name a new directory of mode 0700 in it");
  }
  return {};
}

Status ReadConfig(const Lookup& lookup, Config* config) {
  Status status = ReadRanks(lookup, config);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_BUCKET_CAP_BYTES", &config->bucket_cap_bytes);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_SMALL_BYTES", &config->small_bytes);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_CHUNK_BYTES", &config->chunk_bytes);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_TABLE_SLOTS", &config->table_slots);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_ARENA_BYTES", &config->arena_bytes);
  if (status.ok()) status = ReadInt(lookup, "SMDDP_BOOTSTRAP_TIMEOUT", &config->bootstrap_timeout_seconds);
  if (status.ok()) status = ReadLogLevel(lookup, &config->log_level);
  if (status.ok()) status = ValidateConfig(*config);
  return status;
}

Status ReadConfig(Config* config) {
  return ReadConfig([](const char* name) -> const char* { return std::getenv(name); }, config);
}

}  // namespace tf_smddp
