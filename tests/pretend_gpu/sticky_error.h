// Sticky errors: after a kernel's access to an illegal address, a context is of no more use, and each call
// that uses it returns the same error.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_STICKY_ERROR_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_STICKY_ERROR_H_

#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/driver_call.h"

namespace pretend_gpu {

// Any thread, as what follows.
bool IsBroken(int device);
bool IsAnyBroken();

// Returns the error of the current context's device.
CUresult StickyError();

// The same, for a call that is about to use the context.
CUresult CountCall();

}  // namespace pretend_gpu

// As PRETEND_GPU_ENTER, for a function that uses the current context.
#define PRETEND_GPU_ENTER_CONTEXT \
  PRETEND_GPU_ENTER;              \
  if (const CUresult sticky = ::pretend_gpu::CountCall()) return sticky

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_STICKY_ERROR_H_
