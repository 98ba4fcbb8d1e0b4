// Numbers with a decimal point in texts. The point is a point, whatever locale the program has set: the
// functions of C and of streams write and expect a comma under many.
//
// Place in the stack: the bottom. Whole numbers: integer_text.h.
#ifndef TF_SMDDP_KERNELS_COMMON_DECIMAL_TEXT_H_
#define TF_SMDDP_KERNELS_COMMON_DECIMAL_TEXT_H_

#include <string>
#include <string_view>

namespace tf_smddp {

// The shortest decimal number that reads back as `value`: "0.25", "1e-07", "inf".
std::string DecimalText(double value);

// `value` rounded to `digits` digits behind the point, at most 9: "0.250".
std::string DecimalText(double value, int digits);

// Reads all of `text`, a decimal number such as "2.5" or "1e-3"; false for everything else.
bool ParseDecimal(std::string_view text, double* value);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_DECIMAL_TEXT_H_
