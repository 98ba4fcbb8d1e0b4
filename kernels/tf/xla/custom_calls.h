// The names by which compiled programs call custom_calls.cc.
#ifndef TF_SMDDP_KERNELS_TF_XLA_CUSTOM_CALLS_H_
#define TF_SMDDP_KERNELS_TF_XLA_CUSTOM_CALLS_H_

#include <cstdint>

namespace tf_smddp {

// The value of a ticket that no call has drawn yet (call_emitter.h, Note [Late tickets]).
inline constexpr std::int64_t kLateTicket = -2;

inline constexpr char kTicketCall[] = "tf_smddp_ticket";
inline constexpr char kStartCall[] = "tf_smddp_start";
inline constexpr char kFinishCall[] = "tf_smddp_finish";
inline constexpr char kRunCall[] = "tf_smddp_run";

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_CUSTOM_CALLS_H_
