// The parts of a ticket.
//
// Place in the stack: the bottom of control/; kernels/engine/core/sequencer.h draws tickets.
#ifndef TF_SMDDP_KERNELS_CONTROL_TICKET_H_
#define TF_SMDDP_KERNELS_CONTROL_TICKET_H_

#include <cstdint>

namespace tf_smddp {

// A ticket is | incarnation: 23 bits | number: 40 bits |, and fits the int64 of TensorFlow's tensors. Numbers
// count from 0 in each incarnation.
inline constexpr int kTicketNumberBits = 40;

inline std::uint64_t TicketOf(std::uint64_t incarnation, std::uint64_t number) {
  return incarnation << kTicketNumberBits | number;
}

inline std::uint64_t IncarnationOf(std::uint64_t ticket) { return ticket >> kTicketNumberBits; }

inline std::uint64_t NumberOf(std::uint64_t ticket) {
  return ticket & ((std::uint64_t{1} << kTicketNumberBits) - 1);
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_TICKET_H_
