#include "kernels/common/config.h"

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "kernels/common/number_text.h"

namespace tf_smddp {
namespace {

// A hundred days, in milliseconds.
constexpr std::int64_t kLongestStall = 8'640'000'000;

Status ReadInteger(const Lookup& lookup, const char* name, std::int64_t* value) {
  const char* text = lookup(name);
  return text == nullptr ? Status() : ParseInteger(name, text, value);
}

Status ReadInt(const Lookup& lookup, const char* name, int* value) {
  const char* text = lookup(name);
  return text == nullptr ? Status() : ParseInt(name, text, value);
}

// Reads a number of seconds, which may have a fraction.
Status ReadSeconds(const Lookup& lookup, const char* name, std::int64_t* milliseconds) {
  const char* text = lookup(name);
  if (text == nullptr) return {};
  double seconds = 0;
  if (!ParseDecimal(text, &seconds) || !(seconds >= 0 && seconds <= kLongestStall / 1000)) {
    return InvalidArgument(std::string(name) + "='" + text +
                           "' is not a number of seconds from 0 (never) to " +
                           std::to_string(kLongestStall / 1000));
  }
  *milliseconds = std::llround(seconds * 1000);
  if (*milliseconds == 0 && seconds > 0) *milliseconds = 1;  // 0 would mean never
  return {};
}

Status ReadSwitch(const Lookup& lookup, const char* name, bool* value) {
  const char* text = lookup(name);
  if (text == nullptr) return {};
  *value = std::string(text) == "1";
  if (*value || std::string(text) == "0") return {};
  return InvalidArgument(std::string(name) + "='" + text + "' is not 0 or 1");
}

Status ReadNccl(const Lookup& lookup, Config* config) {
  const char* const blocking = lookup("NCCL_COMM_BLOCKING");
  config->nccl_blocks = blocking != nullptr && std::string(blocking) == "1";
  const char* text = lookup("SMDDP_NCCL");
  if (text == nullptr) return {};
  config->nccl = std::string(text) != "0";
  config->nccl_required = std::string(text) == "required";
  if (!config->nccl || config->nccl_required || std::string(text) == "1") return {};
  return InvalidArgument(std::string("SMDDP_NCCL='") + text + "' is not one of 0, 1, required");
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

void ReadText(const Lookup& lookup, const char* name, std::string* text) {
  if (const char* value = lookup(name)) *text = value;
}

// Reads the place of this process in the job, and where the ranks meet.
Status ReadRanks(const Lookup& lookup, Config* config) {
  Launch launch;
  Status status = ReadLaunch(lookup, &launch);
  if (!status.ok()) return status;
  config->rank = launch.rank;
  config->size = launch.size;
  config->local_rank = launch.local_rank;
  config->local_size = launch.local_size;
  config->mpi_kind = launch.mpi_kind;
  config->mpi_kind_is_sure = launch.mpi_kind_is_sure;
  config->process_manager = std::move(launch.process_manager);
  config->launcher = std::move(launch.launcher);
  config->run_id = std::move(launch.run_id);
  config->rank_variables = std::move(launch.rank_variables);
  config->note = std::move(launch.note);
  ReadText(lookup, "SMDDP_RENDEZVOUS", &config->rendezvous);
  ReadText(lookup, "SMDDP_TMPDIR", &config->temporary_directory);
  ReadText(lookup, "XDG_RUNTIME_DIR", &config->user_runtime_directory);
  ReadText(lookup, "TMPDIR", &config->system_temporary_directory);
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
      CheckRange("SMDDP_SIZE", config.size, 1, kMaxRanks),
      CheckRange("SMDDP_RANK", config.rank, 0, config.size - 1),
      CheckRange("SMDDP_LOCAL_SIZE", config.local_size, 1, kMaxLocalRanks),
      CheckRange("SMDDP_LOCAL_RANK", config.local_rank, 0, config.local_size - 1),
      CheckRange("SMDDP_BUCKET_CAP_BYTES", config.bucket_cap_bytes, 128, kGiB - 128),
      CheckMultiple("SMDDP_BUCKET_CAP_BYTES", config.bucket_cap_bytes, 128),
      CheckRange("SMDDP_SMALL_BYTES", config.small_bytes, 0, 1 << 20),
      CheckRange("SMDDP_CHUNK_BYTES", config.chunk_bytes, 1024, 64 << 20),
      CheckMultiple("SMDDP_CHUNK_BYTES", config.chunk_bytes, 128),
      CheckRange("SMDDP_TABLE_SLOTS", config.table_slots, 16, 1 << 22),
      CheckRange("SMDDP_ARENA_BYTES", config.arena_bytes, config.arena_bytes_given ? kMinArenaBytes : 0,
                 kGiB << 12),
      CheckRange("SMDDP_BOOTSTRAP_TIMEOUT", config.bootstrap_timeout_seconds, 1, 86400),
      CheckRange("SMDDP_STALL_WARNING, in milliseconds,", config.stall_warning_ms, 0, kLongestStall),
      CheckRange("SMDDP_STALL_TIMEOUT, in milliseconds,", config.stall_timeout_ms, 0, kLongestStall),
      CheckRange("SMDDP_HOST_TIMEOUT, in milliseconds,", config.host_timeout_ms, 0, kLongestStall),
      CheckRange("SMDDP_NCCL_TIMEOUT, in milliseconds,", config.nccl_timeout_ms, 0, kLongestStall),
      CheckRange("SMDDP_LOG_LEVEL", config.log_level, 0, 4),
      CheckRange("SMDDP_TEST_TRANSFER_DELAY_MS", config.test_transfer_delay_ms, 0, 60'000),
      CheckRange("SMDDP_TEST_GROUPED_HOSTS", config.test_grouped_hosts, 0, 1 << 20),
  };
  for (const Status& check : checks) {
    if (!check.ok()) return check;
  }
  // Hosts give a sign of life every second.
  if (config.host_timeout_ms != 0 && config.host_timeout_ms < 3000) {
    return InvalidArgument("SMDDP_HOST_TIMEOUT, in milliseconds, is " +
                           std::to_string(config.host_timeout_ms) +
                           "; give 3 seconds or more, or 0 for never");
  }
  if ((config.table_slots & (config.table_slots - 1)) != 0) {
    return InvalidArgument("SMDDP_TABLE_SLOTS=" + std::to_string(config.table_slots) +
                           " is not a power of two");
  }
  if (config.size > 1 && config.rendezvous.empty() && config.run_id.empty() &&
      config.rank_variables.empty()) {
    return InvalidArgument(
        "SMDDP_RENDEZVOUS is not set though SMDDP_SIZE=" + std::to_string(config.size) +
        "; start the ranks with smddprun, or set SMDDP_JOB_ID to a new text, the same on all ranks");
  }
  return {};
}

Status ReadConfig(const Lookup& lookup, Config* config) {
  Status status = ReadRanks(lookup, config);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_BUCKET_CAP_BYTES", &config->bucket_cap_bytes);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_SMALL_BYTES", &config->small_bytes);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_CHUNK_BYTES", &config->chunk_bytes);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_TABLE_SLOTS", &config->table_slots);
  if (status.ok()) status = ReadSwitch(lookup, "SMDDP_DETERMINISTIC", &config->deterministic);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_ARENA_BYTES", &config->arena_bytes);
  config->arena_bytes_given = lookup("SMDDP_ARENA_BYTES") != nullptr;
  if (status.ok()) status = ReadInt(lookup, "SMDDP_BOOTSTRAP_TIMEOUT", &config->bootstrap_timeout_seconds);
  if (status.ok()) status = ReadSeconds(lookup, "SMDDP_STALL_WARNING", &config->stall_warning_ms);
  if (status.ok()) status = ReadSeconds(lookup, "SMDDP_STALL_TIMEOUT", &config->stall_timeout_ms);
  if (status.ok()) status = ReadSeconds(lookup, "SMDDP_HOST_TIMEOUT", &config->host_timeout_ms);
  if (status.ok()) status = ReadNccl(lookup, config);
  if (status.ok()) status = ReadSeconds(lookup, "SMDDP_NCCL_TIMEOUT", &config->nccl_timeout_ms);
  ReadText(lookup, "SMDDP_NCCL_LIBRARY", &config->nccl_library);
  ReadText(lookup, "SMDDP_MPI_LIBRARY", &config->mpi_library);
  if (status.ok()) status = ReadLogLevel(lookup, &config->log_level);
  if (status.ok()) {
    status = ReadInteger(lookup, "SMDDP_TEST_TRANSFER_DELAY_MS", &config->test_transfer_delay_ms);
  }
  if (status.ok()) status = ReadSwitch(lookup, "SMDDP_TEST_OWN_GPU", &config->test_own_gpu);
  if (status.ok()) status = ReadInteger(lookup, "SMDDP_TEST_GROUPED_HOSTS", &config->test_grouped_hosts);
  // With it, Python's check looks at gradients, too (periodic_check.py), or the user wants none.
  config->check_gradients = lookup("SMDDP_CHECK_EVERY") == nullptr;
  if (lookup("SMDDP_TEST_STRICT") != nullptr) config->test_strict = true;
  if (status.ok()) status = ValidateConfig(*config);
  return status;
}

Status ReadConfig(Config* config) {
  return ReadConfig([](const char* name) -> const char* { return std::getenv(name); }, config);
}

}  // namespace tf_smddp
