// Sweep: measures the allreduce of an implementation, and memcpy for comparison.
//
// For each size, or for the gradient set:
//   1. Verify. The ranks sum integers that differ in each rank and neighbouring elements. Every element of
//      the result must be exact.
//   2. Find how many repetitions fill a block of `block_seconds`, for allreduce and for memcpy.
//   3. Alternate `blocks` times between a block of allreduces and a block of memcpys of the same bytes. Every
//      rank copies at the same time, from a source to a destination of its own. All ranks begin a block
//      together, and its time is that of the slowest rank, divided by the repetitions.
// Rank 0 writes one JSON line for each, with the times of all blocks in seconds.
#ifndef TF_SMDDP_BENCHMARKS_CPP_SWEEP_H_
#define TF_SMDDP_BENCHMARKS_CPP_SWEEP_H_

#include "benchmarks/cpp/contestant.h"
#include "benchmarks/cpp/options.h"

namespace tf_smddp::benchmarks {

// Collective: every rank must call this. A wrong result ends the process with code 1 and a message.
void RunSweep(Contestant& contestant, const Options& options);

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_CPP_SWEEP_H_
