// Config: everything the environment can say to the engine. docs/configuration.md has the table.
//
// Place in the stack: the bottom. config.cc is the only file of the project that reads the environment; all
// else is handed a Config.
#ifndef TF_SMDDP_KERNELS_COMMON_CONFIG_H_
#define TF_SMDDP_KERNELS_COMMON_CONFIG_H_

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

struct Config {
  // Who this process is.
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string rendezvous;  // directory where the ranks of this host meet; empty when size is 1

  // What must be equal on all ranks (compared when they meet).
  std::int64_t bucket_cap_bytes = 25 << 20;  // a batch is sealed at this many bytes; a multiple of 128
  std::int64_t small_bytes = 4 << 10;        // requests up to this are reduced by the last rank to arrive
  std::int64_t chunk_bytes = 512 << 10;      // the piece that one thread reduces at a time; a multiple of 128
  std::int64_t table_slots = 16384;          // distinct keys of one job; a power of two

  // Local to each rank.
  std::int64_t arena_bytes = 64 << 20;
  int bootstrap_timeout_seconds = 120;
  int log_level = 2;  // LogLevel
};

// Largest number of ranks on one host.
inline constexpr int kMaxLocalRanks = 64;

// Fills *config from the environment. `lookup` returns the value of a variable, or nullptr; the one without
// it uses the process's environment. Errors: InvalidArgument naming the variable, its value and what is
// allowed.
Status ReadConfig(const std::function<const char*(const char*)>& lookup, Config* config);
Status ReadConfig(Config* config);

// Checks what ReadConfig checks, for a Config made by hand.
Status ValidateConfig(const Config& config);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_CONFIG_H_
