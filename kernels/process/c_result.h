// CResult: how the functions of the C API report errors.
#ifndef TF_SMDDP_KERNELS_PROCESS_C_RESULT_H_
#define TF_SMDDP_KERNELS_PROCESS_C_RESULT_H_

#include <cstddef>
#include <string>

#include "kernels/common/status.h"
#include "kernels/process/smddp.h"

namespace tf_smddp {

// The code of `status` in the C API.
smddp_result CResultOf(const Status& status);

// The same; and on an error, its message becomes what smddp_last_error returns in this thread.
smddp_result Report(const Status& status);

// Writes `from` as valid UTF-8, cut to fit.
void WriteText(const std::string& from, char* text, std::size_t text_bytes);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_PROCESS_C_RESULT_H_
