// SpinTime: decides whether a thread may wait without sleeping.
//
// Place in the stack: above job.h.
#ifndef TF_SMDDP_KERNELS_ENGINE_SPIN_TIME_H_
#define TF_SMDDP_KERNELS_ENGINE_SPIN_TIME_H_

#include "kernels/common/clock.h"
#include "kernels/engine/job.h"

namespace tf_smddp {

// Returns `time`, or 0 if the ranks of this host together have fewer than `cores_needed` cores. Spinning
// saves the few microseconds of a wake-up, but only where no other thread needs the core.
Clock::duration SpinTime(const Job& job, int cores_needed, Clock::duration time);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_SPIN_TIME_H_
