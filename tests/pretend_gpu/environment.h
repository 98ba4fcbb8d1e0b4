// Reading variables of the environment.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_ENVIRONMENT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_ENVIRONMENT_H_

#include <string>

#include "tests/pretend_gpu/visibility.h"

namespace pretend_gpu {

// Returns the variable, or `otherwise` if it is not set, or empty.
PRETEND_GPU_SHARED std::string TextVariable(const char* name, const char* otherwise);

// As TextVariable. Ends the process if the value is no whole number from `least` to `most`.
PRETEND_GPU_SHARED long NumberVariable(const char* name, long otherwise, long least, long most);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_ENVIRONMENT_H_
