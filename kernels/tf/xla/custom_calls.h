// The names by which compiled programs call cpu_calls.cc and gpu_calls.cc, which do what calls.h says. The
// last operand and the last result of each call are tokens (call_emitter.h):
//
//   ticket(tensor, token) -> (ticket, token)
//   begin(tensor, ticket, token) -> token: without a ticket it draws one
//   start(tensor, token) -> (buffer, token)
//   finish(buffer, token) -> (result, token): the first one of a group has the tokens of all starts
//   run(tensors, ticket, token) -> (results, token): without tensors in a barrier, and without a ticket in a
//                                  sequence
//   pass(tensor, token) -> (token)
#ifndef TF_SMDDP_KERNELS_TF_XLA_CUSTOM_CALLS_H_
#define TF_SMDDP_KERNELS_TF_XLA_CUSTOM_CALLS_H_

#include <cstdint>

namespace tf_smddp {

// The value of a ticket that no call has drawn yet (call_emitter.h, Note [Late tickets]).
inline constexpr std::int64_t kLateTicket = -2;

inline constexpr char kTicketCall[] = "tf_smddp_ticket";
inline constexpr char kBeginCall[] = "tf_smddp_begin";
inline constexpr char kStartCall[] = "tf_smddp_start";
inline constexpr char kFinishCall[] = "tf_smddp_finish";
inline constexpr char kRunCall[] = "tf_smddp_run";
inline constexpr char kPassCall[] = "tf_smddp_pass";

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_CUSTOM_CALLS_H_
