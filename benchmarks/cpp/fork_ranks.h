// ForkRanks: the ranks of a job as forked processes of this host, for contestants without a launcher.
#ifndef TF_SMDDP_BENCHMARKS_CPP_FORK_RANKS_H_
#define TF_SMDDP_BENCHMARKS_CPP_FORK_RANKS_H_

#include <functional>

#include "benchmarks/cpp/options.h"

namespace tf_smddp::benchmarks {

// Runs `rank` (0 to options.ranks - 1) in a process each, ended after the time limit, and waits for them. The
// first that fails ends the others. Returns the exit code of all. `program` is for messages.
int ForkRanks(const char* program, const Options& options, const std::function<void(int rank)>& rank);

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_CPP_FORK_RANKS_H_
