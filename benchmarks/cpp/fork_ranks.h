// ForkRanks: runs the ranks of a job as forked processes on this host, for implementations without a
// launcher.
#ifndef TF_SMDDP_BENCHMARKS_CPP_FORK_RANKS_H_
#define TF_SMDDP_BENCHMARKS_CPP_FORK_RANKS_H_

#include <functional>

#include "benchmarks/cpp/options.h"

namespace tf_smddp::benchmarks {

// Calls `rank` with 0 to options.ranks - 1, each in a process of its own, and waits for all. A process that
// exceeds the time limit is ended; when one fails, the others are ended. Returns 0 if all succeeded, else 1.
// `program` is for messages.
int ForkRanks(const char* program, const Options& options, const std::function<void(int rank)>& rank);

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_CPP_FORK_RANKS_H_
