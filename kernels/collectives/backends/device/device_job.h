// DeviceJob: what a transfer whose work goes on on a device, after the end of a batch, asks of its job.
//
// Place in the stack: below the transfers of GPUs. The engine fills it (kernels/engine/batch_runner.cc).
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_DEVICE_DEVICE_JOB_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_DEVICE_DEVICE_JOB_H_

#include <functional>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

// Any thread calls these, perhaps after the transfer's end.
struct DeviceJob {
  std::function<void(const std::string& text)> fail;  // ends it
  std::function<Status()> error;                      // with which it has ended; OK if it has not
  std::function<void(const std::string& text)> log;   // a line for the user
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_DEVICE_DEVICE_JOB_H_
