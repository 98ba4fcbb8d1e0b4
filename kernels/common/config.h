// Config: the settings of the engine, which come from the environment. docs/configuration.md has the table.
//
// Place in the stack: the bottom. config.cc is the only file of kernels/ that reads the environment; all
// others are given a Config.
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
  // The place of this process in the job.
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string launcher;  // the name, for messages, of what started this process; empty when nothing did
  MpiKind mpi_kind = MpiKind::kUnknown;   // see Launch
  bool mpi_kind_is_sure = true;           // likewise
  ProcessManagerAddress process_manager;  // likewise

  // The place where the ranks of this host meet (control/rendezvous.h) follows from these.
  std::string rendezvous;                   // a directory that was made for this run; empty when none was
  std::string run_id;                       // see Launch
  std::vector<std::string> rank_variables;  // see Launch
  std::string temporary_directory;          // the user's choice; empty when there is none
  std::string user_runtime_directory;       // XDG_RUNTIME_DIR; empty when it is not set
  std::string system_temporary_directory;   // TMPDIR; empty when it is not set

  std::string note;  // a warning that init() logs; empty when there is none

  // These must be equal on all ranks, which compare them when they meet.
  std::int64_t bucket_cap_bytes = 25 << 20;  // a batch of so many bytes is sealed; a multiple of 128
  std::int64_t small_bytes = 4 << 10;        // requests up to this are reduced by the last rank to arrive
  std::int64_t chunk_bytes = 512 << 10;      // the piece that one thread reduces at a time; a multiple of 128
  std::int64_t table_slots = 131072;         // distinct keys of one job; a power of two

  bool deterministic = false;  // each reduction gives the same bits in each run

  // These may differ between ranks.
  std::int64_t arena_bytes = 0;    // of address space; 0 for as much as the machine has memory
  bool arena_bytes_given = false;  // the user chose arena_bytes, which no limit of the system lowers then
  int bootstrap_timeout_seconds = 120;
  std::int64_t stall_warning_ms = 60'000;   // a longer wait for other ranks is logged; 0 for never
  std::int64_t host_timeout_ms = 30'000;    // a host that is silent for so long is lost; 0 for never
  std::int64_t stall_timeout_ms = 600'000;  // a longer wait without progress ends the job; 0 for never
  bool nccl = true;                         // tensors of GPUs are reduced by NCCL, where it is there
  bool nccl_required = false;               // and where it is not, the job ends
  bool nccl_blocks = false;                 // NCCL_COMM_BLOCKING, which NCCL obeys before its callers
  std::int64_t nccl_timeout_ms = 50'000;    // NCCL is not used if its start takes longer; 0 for never
  std::string nccl_library;                 // its path; empty for what the system finds
  std::string mpi_library;                  // likewise, where the ranks are on several hosts
  int log_level = 2;                        // a LogLevel
  bool check_gradients = true;     // now and then, for what is not finite (engine/core/gradient_check.h)
  bool test_strict = kDebugBuild;  // for tests: a lost wake-up, which only costs time, is an error
  std::int64_t test_transfer_delay_ms = 0;  // for tests: each tensor of a batch takes so much longer
  bool test_own_gpu = false;  // for tests: ranks that share a GPU use NCCL, as if each had one of its own
  std::int64_t test_grouped_hosts = 0;  // for tests: so many hosts exchange all in groups; 0 for the rule
};

// The smallest arena.
inline constexpr std::int64_t kMinArenaBytes = 1 << 20;

// Fills *config from the environment that `lookup` shows, or from the environment of the process. Errors:
// InvalidArgument, which names the variable, its value and the values that are allowed.
Status ReadConfig(const Lookup& lookup, Config* config);
Status ReadConfig(Config* config);

// Makes the checks of ReadConfig, for a Config that was made by hand, which may be of several hosts.
Status ValidateConfig(const Config& config);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_CONFIG_H_
