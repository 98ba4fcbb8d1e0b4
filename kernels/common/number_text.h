// Numbers with a decimal point in texts. The point is a point, whatever locale the program has set: the
// functions of C and of streams write and expect a comma under many.
//
// Place in the stack: the bottom. Whole numbers: number_text.h.
#ifndef TF_SMDDP_KERNELS_COMMON_NUMBER_TEXT_H_
#define TF_SMDDP_KERNELS_COMMON_NUMBER_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/common/status.h"

namespace tf_smddp {

// Reads all of `text` as a decimal integer. Errors: InvalidArgument, which names `name`, the
// variable that the text comes from.
Status ParseInteger(const std::string& name, const char* text, std::int64_t* value);

// Does the same for a value that must fit an int.
Status ParseInt(const std::string& name, const char* text, int* value);

// The shortest decimal number that reads back as `value`: "0.25", "1e-07", "inf".
std::string DecimalText(double value);

// `value` rounded to `digits` digits behind the point, at most 9: "0.250".
std::string DecimalText(double value, int digits);

// Reads all of `text`, a decimal number such as "2.5" or "1e-3"; false for everything else.
bool ParseDecimal(std::string_view text, double* value);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_NUMBER_TEXT_H_
