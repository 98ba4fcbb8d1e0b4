// Exchanges: allreduces that ours is compared with, in their plain textbook form. Each adds float32.
//
// Place in the stack: above port.h. cluster_model.cc runs them, and says on which memory.
#ifndef TF_SMDDP_BENCHMARKS_CLUSTER_EXCHANGES_H_
#define TF_SMDDP_BENCHMARKS_CLUSTER_EXCHANGES_H_

#include <cstdint>
#include <vector>

#include "benchmarks/cluster/port.h"

namespace tf_smddp::cluster {

// Ranks that reduce together, and this rank's place among them.
struct Group {
  std::vector<int> ranks;
  std::size_t self = 0;
};

// All work in place, on `count` elements of `data`; every rank of the group calls them.

// A ring: N - 1 steps of reduce-scatter and N - 1 of allgather. In each step a rank sends 1/N of the data to
// the next one.
void Ring(Port* port, const Group& group, float* data, std::uint64_t count);

// Halving and doubling: log2 N steps, in which a rank sends half of what it still has to the rank at distance
// N/2, N/4, …, and as many steps back. The number of ranks is a power of two.
void HalvingDoubling(Port* port, const Group& group, float* data, std::uint64_t count);

// Recursive doubling: log2 N steps, in which a rank sends all of its data. The number is a power of two.
void RecursiveDoubling(Port* port, const Group& group, float* data, std::uint64_t count);

// A parameter server. The first ranks of the group are workers, the last `servers` only serve. Pieces take
// turns among the servers: each worker sends the whole piece to its server, which adds the pieces of all
// workers and sends the result to all of them.
void ParameterServer(Port* port, const Group& group, std::size_t servers, const float* input, float* output,
                     std::uint64_t count, std::uint64_t piece_bytes, std::size_t slots);

}  // namespace tf_smddp::cluster

#endif  // TF_SMDDP_BENCHMARKS_CLUSTER_EXCHANGES_H_
