// The element types that the ops take, as the text of a type attribute: "{half, bfloat16, …}".
#ifndef TF_SMDDP_OPS_TYPE_LIST_H_
#define TF_SMDDP_OPS_TYPE_LIST_H_

#include "kernels/common/dtype_table.h"

#define TF_SMDDP_TYPE_NAME(enumerator, name, tensorflow, ...) #tensorflow
#define TF_SMDDP_TYPES "{" TF_SMDDP_DTYPES(TF_SMDDP_TYPE_NAME, ", ") "}"

#endif  // TF_SMDDP_OPS_TYPE_LIST_H_
