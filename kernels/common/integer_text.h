// Integers in texts that users and launchers write.
//
// Place in the stack: the bottom.
#ifndef TF_SMDDP_KERNELS_COMMON_INTEGER_TEXT_H_
#define TF_SMDDP_KERNELS_COMMON_INTEGER_TEXT_H_

#include <cstdint>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

// Reads all of `text` as a decimal integer. Errors: InvalidArgument, which names `name`, the
// variable that the text comes from.
Status ParseInteger(const std::string& name, const char* text, std::int64_t* value);

// Does the same for a value that must fit an int.
Status ParseInt(const std::string& name, const char* text, int* value);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_INTEGER_TEXT_H_
