// Sweep: measures a contestant's allreduce, and memcpy beside it.
//
// For each size, or for the gradient set:
//   1. Verify: integers that sum exactly, different in each rank and element; every element must be right.
//   2. Find how many repetitions fill a block of `block_seconds`, for allreduce and for memcpy.
//   3. Alternate `blocks` times: a block of allreduces, a block of memcpys of the same bytes, which every
//   rank
//      makes at once from a source to a destination of its own. All ranks begin a block together, and its
//      time is that of the slowest rank, by repetition.
// Rank 0 writes one JSON line for each, with the times of all blocks in seconds; medians are for the reader.
#ifndef TF_SMDDP_BENCHMARKS_CPP_SWEEP_H_
#define TF_SMDDP_BENCHMARKS_CPP_SWEEP_H_

#include "benchmarks/cpp/contestant.h"
#include "benchmarks/cpp/options.h"

namespace tf_smddp::benchmarks {

// Collective. A wrong result ends the process with code 1 and a message.
void RunSweep(Contestant& contestant, const Options& options);

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_CPP_SWEEP_H_
