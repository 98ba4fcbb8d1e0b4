// The private parts of TensorFlow that the library uses, each behind a function that says why, and what would
// replace it.
//
// Place in the stack: above TensorFlow alone; nothing of the engine. No other file of kernels/ or ops/ reads
// a private member of a class of TensorFlow's, or includes a header that TensorFlow calls internal. Compiles
// with TensorFlow 2.15 to 2.21. Not here: the private parts that the Python package uses
// (tf_smddp/_base/tensorflow_private.py).
#ifndef TF_SMDDP_KERNELS_TF_TENSORFLOW_PRIVATE_H_
#define TF_SMDDP_KERNELS_TF_TENSORFLOW_PRIVATE_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/allocator_registry.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

struct XlaCustomCallStatus_;

namespace tf_smddp {

// Whether the session's run that `manager` belongs to goes on. To be called in a callback of the manager's.
//
// The manager of a run calls back when the run fails, and also when it is destroyed after a run that has not
// failed. In the first case the run's rendezvous, which knows the error, exists; in the second it does not.
// The manager is a child of its session's manager until it is destroyed or the session is closed. So this
// reads the manager's parent. False also for a session that is being closed: there is no error to ask for
// then.
//
// Replaced by: a public way to tell the two cases apart, such as an argument of the callback.
bool SessionRunGoesOn(const tensorflow::CancellationManager& manager);

struct AllocatorSource {
  std::string name;
  int priority;
  tensorflow::AllocatorFactory* factory;  // the registry's, which never deletes one
};

// The factory that is registered for the CPU's allocator. An allocator in front of TensorFlow's own must find
// that one. The registry's lock is not taken: call it where libraries are loaded, or where the registry calls
// a factory.
//
// Replaced by: a public list of the registry's factories.
std::vector<AllocatorSource> AllocatorSources();

// Whether TensorFlow has made its first allocation on the CPU. Registering a factory after it ends the
// process.
//
// Replaced by: a function of the registry that refuses a late factory with a status.
bool HasAllocated();

// The stream (CUstream) on which the device of the op computes; nullptr on the CPU. To be called in a kernel
// that is registered for a GPU of CUDA, or for the CPU.
//
// Replaced by: a public way to the stream that needs none of CUDA's headers.
void* ComputeStream(tensorflow::OpKernelContext* context);

// Has the custom call of a compiled program fail with `message`.
//
// TensorFlow exports no definition of XlaCustomCallStatusSetFailure, the public function for it.
//
// Replaced by: the typed foreign-function interface of XLA, whose calls return a status; from 2.20 on.
void SetCustomCallFailure(XlaCustomCallStatus_* status, std::string message);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_TENSORFLOW_PRIVATE_H_
