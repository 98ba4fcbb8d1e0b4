// SpinTime: whether waiting without sleeping takes a core from nobody.
//
// Place in the stack: above job.h.
#ifndef TF_SMDDP_KERNELS_ENGINE_SPIN_TIME_H_
#define TF_SMDDP_KERNELS_ENGINE_SPIN_TIME_H_

#include "kernels/common/clock.h"
#include "kernels/engine/job.h"

namespace tf_smddp {

// `time`, or 0 where this host's ranks have fewer cores than `cores_needed` by all of them. Spinning saves a
// wake-up's few microseconds, where nobody else wants the core.
Clock::duration SpinTime(const Job& job, int cores_needed, Clock::duration time);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_SPIN_TIME_H_
