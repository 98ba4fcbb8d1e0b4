// SessionStep: a session's run, as its cancellation manager shows it.
//
// Place in the stack: TensorFlow alone; nothing of the engine. The manager of a run calls back when the run
// fails, and again when it is destroyed without that. Only in the first case the run's rendezvous, which
// knows the error, still exists. Nothing public tells the two cases apart.
#ifndef TF_SMDDP_KERNELS_TF_SESSION_STEP_H_
#define TF_SMDDP_KERNELS_TF_SESSION_STEP_H_

#include "tensorflow/core/framework/cancellation.h"

namespace tf_smddp {

// Whether the session's run that `manager` belongs to still goes on. To be called in a callback of the
// manager's. False also when it is the session that is being closed: then there is no error to ask for.
bool SessionStepRuns(const tensorflow::CancellationManager& manager);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_SESSION_STEP_H_
