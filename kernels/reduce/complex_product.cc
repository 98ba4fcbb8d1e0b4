#include "kernels/reduce/complex_product.h"

#include <cmath>
#include <limits>

namespace tf_smddp {
namespace {

// std::complex is not used, since its product treats infinities by a rule that differs between compilers.
template <typename T>
struct Complex {
  T re, im;
};

template <typename T>
Complex<T> Scaled(Complex<T> z, T factor) {
  return {z.re * factor, z.im * factor};
}

// Each product and the sum are rounded (-ffp-contract=off, see BUILD).
template <typename T>
Complex<T> Product(Complex<T> z, Complex<T> w) {
  return {z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re};
}

template <typename T>
T WithOneNaN(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

}  // namespace

// A factor of 1 needs no case of its own, since multiplying by it changes no bits except those of NaNs.
template <typename T>
void ComplexProduct(const KernelArgs& args) {
  const T prescale = static_cast<T>(args.factors.prescale);
  const T postscale = static_cast<T>(args.factors.postscale);
  for (std::size_t e = 0; e < args.count; ++e) {
    const auto input = [&](int i) {
      return Scaled(static_cast<const Complex<T>*>(args.inputs[i])[e], prescale);
    };
    Complex<T> product = input(0);
    for (int i = 1; i < args.num_inputs; ++i) product = Product(product, input(i));
    product = Scaled(product, postscale);
    product = {WithOneNaN(product.re), WithOneNaN(product.im)};
    for (int k = 0; k < args.num_outputs; ++k) static_cast<Complex<T>*>(args.outputs[k])[e] = product;
  }
}

template void ComplexProduct<float>(const KernelArgs& args);
template void ComplexProduct<double>(const KernelArgs& args);

}  // namespace tf_smddp
