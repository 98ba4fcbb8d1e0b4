// HostReduction: what the hosts of a job compute of an allreduce or a broadcast. Each host makes a partial
// result of its ranks' inputs. The result is made of the hosts' partial results, and written into all
// outputs.
//
// Place in the stack: above reduce/. HierarchicalTransfer (hierarchical_transfer.h) does this with the pieces
// of large tensors, and the relay (kernels/engine/hosts/relay.h) with small tensors as a whole.
//
// Partial results and results lie and cross in the type of TypeOnWire. In an allreduce, the inputs of a host
// are combined in the order of the ranks, and the partial results in the order of the hosts. So a result is
// bitwise the same wherever it is made. In a broadcast, the root's input is the partial result of its host.
// Those of the other hosts are zeros, or left out, and the result is the sum of the bytes.
//
// Compression: float32 crosses in 16 bits if the request says so, and if it is a sum or an average. Factors
// and divisor are applied in float32 before that, so what crosses is in the range of the result. The partial
// results are added in float32.
//
// All functions: `count` is in elements; pointers need the alignment of an element; any thread.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_HOST_REDUCTION_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_HOST_REDUCTION_H_

#include <cstdint>

#include "kernels/common/operation.h"

namespace tf_smddp {

// Returns whether a reduction can be made of partial results. An average of integers cannot, since it is that
// of the exact sum, for which partial results have no room.
bool HasPartialResults(const Operation& operation);

// Returns whether `operation` is a broadcast, or an allreduce that can be made of partial results.
bool ReducesByHosts(const Operation& operation);

// Returns the type in which elements cross.
DType TypeOnWire(const Operation& operation);

// Returns whether an input of a host with one rank is the partial result of that host, as it lies there.
bool IsPartialResult(const Operation& operation);

// Makes the partial result of one host out of the inputs of its ranks, in the order of the ranks; of a
// broadcast, out of the root's, or out of no input. `num_ranks` ranks of all hosts take part. Changes the
// pointers in `inputs`.
void ReduceOnHost(const Operation& operation, int num_ranks, const void** inputs, int num_inputs,
                  void* partial, std::uint64_t count);

// Makes the result out of the partial results, in the order of the hosts. `result` may be one of them.
void ReducePartials(const Operation& operation, int num_ranks, const void* const* partials, int num_partials,
                    void* result, std::uint64_t count);

// Makes one partial result out of several, in the order of the hosts. `result` may be one of them.
void AddPartials(const Operation& operation, const void* const* partials, int num_partials, void* result,
                 std::uint64_t count);

// Writes the result into outputs, in the type of the tensor. `past_cache`: see Reduction.
void WriteResult(const Operation& operation, const void* result, void* const* outputs, int num_outputs,
                 std::uint64_t count, bool past_cache);

// The two steps at once, in one pass over memory where possible. `scratch` has room for the result in the
// type on the wire.
void WriteReduced(const Operation& operation, int num_ranks, const void* const* partials, int num_partials,
                  void* scratch, void* const* outputs, int num_outputs, std::uint64_t count, bool past_cache);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_HOST_REDUCTION_H_
