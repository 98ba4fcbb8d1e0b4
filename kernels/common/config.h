// Config: everything the environment can say to the engine. docs/configuration.md has the table.
//
// Place in the stack: the bottom. config.cc is the only file of the project that reads the environment; all
// else is handed a Config.
#ifndef TF_SMDDP_KERNELS_COMMON_CONFIG_H_
#define TF_SMDDP_KERNELS_COMMON_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/launch_environment.h"
#include "kernels/common/status.h"

namespace tf_smddp {

#ifdef NDEBUG
inline constexpr bool kDebugBuild = false;
#else
inline constexpr bool kDebugBuild = true;
#endif

struct Config {
  // Who this process is.
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string launcher;  // for messages: what started this process; empty when nothing did

  // Where the ranks of this host meet (control/rendezvous.h): a directory, or what identifies this run.
  std::string rendezvous;                   // a directory that was made for this run; empty: none was
  std::string run_id;                       // see Launch
  std::vector<std::string> rank_variables;  // see Launch
  std::string temporary_directory;          // the user's choice; empty: none
  std::string user_runtime_directory;       // XDG_RUNTIME_DIR, TMPDIR: places to try; empty where not set
  std::string system_temporary_directory;

  std::string note;  // what init() should warn about; else empty

  // What must be equal on all ranks (compared when they meet).
  std::int64_t bucket_cap_bytes = 25 << 20;  // a batch is sealed at this many bytes; a multiple of 128
  std::int64_t small_bytes = 4 << 10;        // requests up to this are reduced by the last rank to arrive
  std::int64_t chunk_bytes = 512 << 10;      // the piece that one thread reduces at a time; a multiple of 128
  std::int64_t table_slots = 131072;         // distinct keys of one job; a power of two

  // Local to each rank.
  std::int64_t arena_bytes = 0;    // address space; 0: as much as the machine has memory
  bool arena_bytes_given = false;  // the user chose arena_bytes: limits of the system do not lower it
  int bootstrap_timeout_seconds = 120;
  std::int64_t stall_warning_ms = 60'000;     // a wait for other ranks that is worth a warning; 0: never
  std::int64_t stall_timeout_ms = 1'800'000;  // one without progress that ends the job; 0: never
  int log_level = 2;                          // LogLevel
  bool test_strict = kDebugBuild;             // for tests: what only costs time is an error: a lost wake-up
  std::int64_t test_transfer_delay_ms = 0;    // for tests: each tensor of a batch takes so much longer
  std::int64_t test_patience_us = 0;          // for tests, not read: in the express lane, with any cores
};

// The smallest arena.
inline constexpr std::int64_t kMinArenaBytes = 1 << 20;

// Fills *config from the environment; the one without `lookup` uses the process's. Errors: InvalidArgument
// naming the variable, its value and what is allowed.
Status ReadConfig(const Lookup& lookup, Config* config);
Status ReadConfig(Config* config);

// Checks what ReadConfig checks, for a Config made by hand.
Status ValidateConfig(const Config& config);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_CONFIG_H_
