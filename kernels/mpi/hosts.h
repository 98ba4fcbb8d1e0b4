// Hosts: finds out which ranks are on which host, once MPI has brought the ranks together.
//
// Place in the stack: above runtime.h, below mpi_wire.h.
//
// Two ranks are on one host if their host's name and the id of its kernel's boot are equal. The
// launcher's local ranks must agree with that.
#ifndef TF_SMDDP_KERNELS_MPI_HOSTS_H_
#define TF_SMDDP_KERNELS_MPI_HOSTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/mpi/runtime.h"

namespace tf_smddp::mpi {

// The message of each rank to all others. It travels as its bytes.
struct Introduction {
  char host[256] = {};
  char boot[64] = {};
  char version[32] = {};  // of tf_smddp
  std::int64_t rank = 0;
  std::int64_t local_rank = 0;
  std::int64_t local_size = 0;
  // These must be equal on all ranks.
  std::int64_t bucket_cap_bytes = 0;
  std::int64_t small_bytes = 0;
  std::int64_t chunk_bytes = 0;
  std::int64_t table_slots = 0;
  std::int64_t deterministic = 0;
  std::uint64_t run = 0;    // random; rank 0's names the run
  std::uint64_t keeps = 1;  // it can go on to use the communicator over which the ranks meet
};

// The ranks of a job by host, each in ascending order; hosts are in the order of their first ranks.
struct Hosts {
  std::vector<std::vector<int>> ranks;
  std::vector<std::string> names;
  std::string run_id;     // of the ranks of this host: no other run, and no other host, has it
  std::uint64_t run = 0;  // of the ranks of all hosts: no other run has it
  bool all_keep = true;   // all ranks can go on to use the communicator over which they have met
};

// Collective. Errors: Internal (a rank does not come), InvalidArgument (the ranks have different versions or
// settings, or the launcher's local ranks are not those of the hosts), with the ranks, hosts and values.
// `keeps`: whether this rank can go on to use the communicator.
Status MeetHosts(const Config& config, Runtime* runtime, Handle communicator, bool keeps,
                 Clock::time_point deadline, Hosts* hosts);

// The part of it that follows from what the ranks have told, in the order of the ranks. Pure.
Status GroupByHost(const std::vector<Introduction>& all, int rank, Hosts* hosts);

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_HOSTS_H_
