#include "tests/cpp/reduce/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tf_smddp {
namespace {

using Bytes = std::vector<unsigned char>;
__extension__ using Int128 = __int128;

template <typename T>
T Get(const Bytes& bytes, std::size_t e) {
  T value;
  std::memcpy(&value, bytes.data() + e * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Put(T value, Bytes* bytes, std::size_t e) {
  std::memcpy(bytes->data() + e * sizeof(T), &value, sizeof(T));
}

// Floating point, in the type that accumulates.
template <typename T>
T CombineFloat(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      return b < a ? b : a;
    case ReduceOp::kMax:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      return b > a ? b : a;
  }
  return a;
}

template <typename T>
T FoldFloat(const Reduction& reduction, const std::vector<T>& values) {
  const T prescale = static_cast<T>(reduction.prescale);
  T acc = values[0] * prescale;
  for (std::size_t i = 1; i < values.size(); ++i) acc = CombineFloat(reduction.op, acc, values[i] * prescale);
  if (reduction.op == ReduceOp::kAverage) {
    const std::size_t inputs = values.size();
    acc = acc / static_cast<T>(reduction.divisor != 0 ? static_cast<std::size_t>(reduction.divisor) : inputs);
  }
  acc = acc * static_cast<T>(reduction.postscale);
  return std::isnan(acc) ? std::numeric_limits<T>::quiet_NaN() : acc;
}

template <typename T>
struct Complex {
  T re, im;
};

template <typename T>
Complex<T> FoldComplex(const Reduction& reduction, const std::vector<Complex<T>>& values) {
  std::vector<T> re, im;
  for (const Complex<T>& z : values) {
    re.push_back(z.re);
    im.push_back(z.im);
  }
  if (reduction.op != ReduceOp::kProduct) return {FoldFloat(reduction, re), FoldFloat(reduction, im)};
  const T prescale = static_cast<T>(reduction.prescale);
  T a = re[0] * prescale, b = im[0] * prescale;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const T c = re[i] * prescale, d = im[i] * prescale;
    const T ac = a * c, bd = b * d, ad = a * d, bc = b * c;
    a = ac - bd;
    b = ad + bc;
  }
  // A fold of one value: postscale and the NaNs.
  const Reduction rest = {reduction.dtype, ReduceOp::kSum, 1.0, reduction.postscale};
  return {FoldFloat<T>(rest, {a}), FoldFloat<T>(rest, {b})};
}

template <typename T>
T FoldInteger(ReduceOp op, const std::vector<T>& values) {
  using U = std::make_unsigned_t<T>;
  Int128 sum = 0;
  std::uint64_t product = 1;
  T min = values[0], max = values[0];
  for (T v : values) {
    sum += v;
    product *= static_cast<std::uint64_t>(v);
    min = v < min ? v : min;
    max = v > max ? v : max;
  }
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<T>(static_cast<U>(sum));
    case ReduceOp::kAverage:
      return static_cast<T>(sum / static_cast<int>(values.size()));
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<U>(product));
    case ReduceOp::kMin:
      return min;
    case ReduceOp::kMax:
      return max;
  }
  return T{};
}

std::uint16_t FoldHalf(HalfFormat format, const Reduction& reduction,
                       const std::vector<std::uint16_t>& patterns) {
  std::vector<float> values;
  for (std::uint16_t p : patterns) values.push_back(static_cast<float>(DecodeHalf(format, p)));
  return EncodeHalf(format, FoldFloat(reduction, values));
}

template <typename T>
T FoldBool(ReduceOp op, const std::vector<T>& values) {
  bool all = true, any = false;
  for (T v : values) {
    all = all && v != 0;
    any = any || v != 0;
  }
  return op == ReduceOp::kMin ? all : any;
}

template <typename T, typename Fold>
Bytes Each(const std::vector<Bytes>& inputs, std::size_t count, Fold fold) {
  Bytes result(count * sizeof(T));
  std::vector<T> values(inputs.size());
  for (std::size_t e = 0; e < count; ++e) {
    for (std::size_t i = 0; i < inputs.size(); ++i) values[i] = Get<T>(inputs[i], e);
    Put<T>(fold(values), &result, e);
  }
  return result;
}

}  // namespace

double DecodeHalf(HalfFormat format, std::uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const int implicit = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  const int scale = (exponent == 0 ? 1 : exponent) - bias - format.mantissa_bits;
  return sign * std::ldexp(implicit + mantissa, scale);
}

std::uint16_t EncodeHalf(HalfFormat format, double value) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1 << (format.mantissa_bits - 1));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  if (value == 0) return static_cast<std::uint16_t>(sign);
  int exponent;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);  // of the leading bit; subnormals share the smallest
  // The value in units of the last place; nearbyint rounds to nearest even. A pattern is this number plus the
  // exponents below, and a carry gives the next exponent by itself.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  const int pattern = static_cast<int>(units) + ((exponent + bias - 1) << format.mantissa_bits);
  return static_cast<std::uint16_t>(sign | std::min(pattern, infinity));
}

std::vector<unsigned char> ReferenceReduce(const Reduction& reduction, const std::vector<Bytes>& inputs,
                                           std::size_t count) {
  const auto op = reduction.op;
  const bool divides = op == ReduceOp::kAverage && reduction.divisor > 1;
  if (inputs.size() == 1 && !divides && reduction.prescale == 1.0 && reduction.postscale == 1.0) {
    return inputs[0];
  }
  switch (reduction.dtype) {
    case DType::kFloat16:
      return Each<std::uint16_t>(inputs, count,
                                 [&](auto& v) { return FoldHalf(kFloat16Format, reduction, v); });
    case DType::kBFloat16:
      return Each<std::uint16_t>(inputs, count,
                                 [&](auto& v) { return FoldHalf(kBFloat16Format, reduction, v); });
    case DType::kFloat32:
      return Each<float>(inputs, count, [&](auto& v) { return FoldFloat(reduction, v); });
    case DType::kFloat64:
      return Each<double>(inputs, count, [&](auto& v) { return FoldFloat(reduction, v); });
    case DType::kInt32:
      return Each<std::int32_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kInt64:
      return Each<std::int64_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kUInt8:
      return Each<std::uint8_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kBool:
      return Each<std::uint8_t>(inputs, count, [&](auto& v) { return FoldBool(op, v); });
    case DType::kInt8:
      return Each<std::int8_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kInt16:
      return Each<std::int16_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kUInt16:
      return Each<std::uint16_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kUInt32:
      return Each<std::uint32_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kUInt64:
      return Each<std::uint64_t>(inputs, count, [&](auto& v) { return FoldInteger(op, v); });
    case DType::kComplex64:
      return Each<Complex<float>>(inputs, count, [&](auto& v) { return FoldComplex(reduction, v); });
    case DType::kComplex128:
      return Each<Complex<double>>(inputs, count, [&](auto& v) { return FoldComplex(reduction, v); });
  }
  return {};
}

}  // namespace tf_smddp
