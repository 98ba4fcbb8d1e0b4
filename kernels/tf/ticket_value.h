// TicketValue: what the ticket of an op may be besides a ticket.
#ifndef TF_SMDDP_KERNELS_TF_TICKET_VALUE_H_
#define TF_SMDDP_KERNELS_TF_TICKET_VALUE_H_

#include <cstdint>

namespace tf_smddp {

enum TicketValue : std::int64_t {
  kPairsByName = -1,  // in graphs without program order
  // In eager mode, where an op draws its ticket itself. TensorFlow may give an eager op on a GPU an input of
  // the host's memory that belongs to an op of the same name in another thread: all eager ops share a
  // rendezvous, in which the two have one key. So that input is the same for all.
  kDrawsItself = -2,
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_TICKET_VALUE_H_
