// RelayData: small tensors that cross the hosts with the relays' messages.
//
// Place in the stack: beside relay.h, above the reduction of hosts (host_reduction.h). A host reports a small
// allreduce or broadcast together with its partial result. The head makes the result, and launches the
// request together with it. So the result is everywhere after the two messages that the order takes anyway; a
// transfer would take one more, and a batch. A barrier goes so, too: it has no data, and no batch.
//
// If a host has its tensors on GPUs, a transfer moves the request. The bits are the same either way while all
// ranks take part (host_reduction.h). When one has left, a transfer adds the inputs in the order of the
// ranks, and the head throws away the partial results of allreduces.
//
// The head gets this from each host and sends it to each, so the tensor of a job of many hosts must be
// smaller.
#ifndef TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_DATA_H_
#define TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_DATA_H_

#include <string>
#include <vector>

#include "kernels/common/rank_mask.h"
#include "kernels/control/manifest.h"
#include "kernels/control/readiness_table.h"
#include "kernels/engine/job/communicator.h"

namespace tf_smddp {

// Whether a request goes so, unless a host has its tensors on GPUs: then a transfer moves it.
bool GoesWithReport(const Communicator& communicator, const Manifest& manifest);

// Returns the partial result of this host, at whose ranks `arrived` the request at `place` has arrived; "" of
// a broadcast whose root is on another host. If shared memory is damaged, the job is aborted. Relay.
std::string PartialResult(Communicator* communicator, Place place, const Manifest& manifest,
                          MemberMask arrived);

// Returns the result of the hosts' partial results, in their order; `num_ranks` ranks take part.
std::string ResultOf(const Manifest& manifest, int num_ranks, const std::vector<std::string>& partials);

// Writes the result into the outputs of the ranks `arrived`. If shared memory is damaged, the job is aborted.
// Relay.
void WriteOutputs(Communicator* communicator, Place place, const Manifest& manifest, MemberMask arrived,
                  const std::string& result);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_DATA_H_
