// OutsideParts: what the ranks of other hosts bring to a request, in the arena of this host's relay.
//
// Place in the stack: between relay.h, which writes it, and resolve.h, which reads it on every rank. Nothing
// is written if all ranks of other hosts take part and their rows are known from the manifest.
#ifndef TF_SMDDP_KERNELS_ENGINE_HOSTS_OUTSIDE_PARTS_H_
#define TF_SMDDP_KERNELS_ENGINE_HOSTS_OUTSIDE_PARTS_H_

#include <vector>

#include "kernels/control/relay_message.h"
#include "kernels/engine/job/communicator.h"

namespace tf_smddp {

// Stores those of `parts` that are of other hosts, and points *cell, which is that of outside(), to them.
// Returns the memory, to be given back to the arena; nullptr when the arena is full: then the job is aborted.
// On the relay.
void* StoreOutsideParts(Communicator* communicator, const std::vector<RelayPart>& parts, Cell* cell);

// Reads what `cell` points to; if it points to nothing, all ranks of other hosts take part. False when it is
// damaged.
bool ReadOutsideParts(Communicator* communicator, const Cell& cell, std::vector<RelayPart>* parts);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_HOSTS_OUTSIDE_PARTS_H_
