// Twins of those of TensorFlow's kernels that its kernel generator has made: the elementwise ops.
//
// Such a kernel is called <Op>_GPU_<type>_<type of the result>_kernel. Its arguments have 64 bits each: the
// number of elements; then each operand, and the result, as
//   a vector: allocated base, aligned base, offset in elements, size, stride;
//   a scalar: allocated base, aligned base, offset in elements.
// That was found by looking at what TensorFlow 2.15.1 and 2.21.0 pass; it is not documented. Other ops of the
// generator's, such as Neg, are compiled at run time: ../ptx.h runs them.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "Eigen/Core"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace {

using pretend_gpu::Launch;

template <class T>
struct Operand {
  T* at;
  std::int64_t stride;  // in elements: 1, or 0 for a scalar

  T& operator[](std::int64_t i) const { return at[i * stride]; }
};

// Reads the arguments of a launch in their order. How many there are is not known, so each is checked before
// the next one is read.
class Arguments {
 public:
  Arguments(const Launch& launch, void** arguments) : launch_(launch), arguments_(arguments), count_(Next()) {
    if (count_ < 1) End();
  }

  std::int64_t count() const { return count_; }

  template <class T>
  Operand<const T> Input() {
    const T* at = Address<T>();
    const std::int64_t next = Peek();
    if (pretend_gpu_is_device_memory(reinterpret_cast<void*>(next))) return {pretend_gpu::At(at), 0};
    return {Vector(at), 1};
  }

  template <class T>
  Operand<T> Result() {
    return {Vector(Address<T>()), 1};
  }

 private:
  std::int64_t Peek() const {
    std::int64_t value = 0;
    std::memcpy(&value, arguments_[next_], sizeof(value));
    return value;
  }

  std::int64_t Next() {
    const std::int64_t value = Peek();
    next_++;
    return value;
  }

  template <class T>
  T* Address() {
    Next();  // the allocated base
    T* const aligned = reinterpret_cast<T*>(Next());
    if (!pretend_gpu_is_device_memory(aligned)) End();
    return aligned + Next();
  }

  template <class T>
  T* Vector(T* at) {
    if (Next() != count_ || Next() != 1) End();
    return pretend_gpu::At(at, static_cast<std::size_t>(count_));
  }

  [[noreturn]] void End() const {
    std::fprintf(
        stderr,
        "pretend GPU [%d]: the twin of kernel %s knows operands of one shape and scalars, and argument "
        "%d is of neither; use such operands.\n",
        getpid(), launch_.name, next_);
    std::abort();
  }

  const Launch& launch_;
  void** const arguments_;
  int next_ = 0;
  const std::int64_t count_;
};

template <class T>
constexpr const char* kTypeName = nullptr;
template <>
constexpr const char* kTypeName<bool> = "DT_BOOL";
template <>
constexpr const char* kTypeName<std::int32_t> = "DT_INT32";
template <>
constexpr const char* kTypeName<std::int64_t> = "DT_INT64";
template <>
constexpr const char* kTypeName<Eigen::half> = "DT_HALF";
template <>
constexpr const char* kTypeName<float> = "DT_FLOAT";
template <>
constexpr const char* kTypeName<double> = "DT_DOUBLE";

template <class In, class Out>
void Register(const std::string& op, const pretend_gpu::Bind& bind) {
  const std::string name = op + "_GPU_" + kTypeName<In> + "_" + kTypeName<Out> + "_kernel";
  pretend_gpu_register_kernel(name.c_str(), &bind);
}

template <class In, class Out, class Function>
void RegisterUnary(const std::string& op, Function function) {
  Register<In, Out>(op, [function](const Launch& launch, void** values) -> std::function<void()> {
    Arguments arguments(launch, values);
    const auto x = arguments.Input<In>();
    const auto y = arguments.Result<Out>();
    return [=, count = arguments.count()] {
      for (std::int64_t i = 0; i < count; i++) y[i] = function(x[i]);
    };
  });
}

template <class In, class Out, class Function>
void RegisterBinary(const std::string& op, Function function) {
  Register<In, Out>(op, [function](const Launch& launch, void** values) -> std::function<void()> {
    Arguments arguments(launch, values);
    const auto a = arguments.Input<In>();
    const auto b = arguments.Input<In>();
    const auto y = arguments.Result<Out>();
    return [=, count = arguments.count()] {
      for (std::int64_t i = 0; i < count; i++) y[i] = function(a[i], b[i]);
    };
  });
}

// For int32, they are kernels of the host.
template <class T>
void RegisterArithmetic() {
  RegisterBinary<T, T>("AddV2", [](T a, T b) { return T(a + b); });
  RegisterBinary<T, T>("Sub", [](T a, T b) { return T(a - b); });
  RegisterBinary<T, T>("Mul", [](T a, T b) { return T(a * b); });
  RegisterBinary<T, T>("MulNoNan", [](T a, T b) { return b == T(0) ? T(0) : T(a * b); });
  RegisterUnary<T, T>("Abs", [](T a) { return a < T(0) ? T(-a) : a; });
  RegisterBinary<T, bool>("Equal", [](T a, T b) { return a == b; });
  RegisterBinary<T, bool>("NotEqual", [](T a, T b) { return a != b; });
  RegisterBinary<T, bool>("Less", [](T a, T b) { return a < b; });
  RegisterBinary<T, bool>("LessEqual", [](T a, T b) { return a <= b; });
  RegisterBinary<T, bool>("Greater", [](T a, T b) { return a > b; });
  RegisterBinary<T, bool>("GreaterEqual", [](T a, T b) { return a >= b; });
}

template <class T>
void RegisterFloating() {
  RegisterArithmetic<T>();
  RegisterBinary<T, T>("Div", [](T a, T b) { return T(a / b); });
}

// From each type to each type.
template <class... T>
struct Casts {
  template <class From, class To>
  static void RegisterOne() {
    RegisterUnary<From, To>("Cast", [](From a) { return static_cast<To>(a); });
  }
  template <class From>
  static void RegisterFrom() {
    (RegisterOne<From, T>(), ...);
  }
  static void Register() { (RegisterFrom<T>(), ...); }
};

__attribute__((constructor)) void RegisterTwins() {
  RegisterFloating<float>();
  RegisterFloating<double>();
  RegisterFloating<Eigen::half>();
  RegisterArithmetic<std::int64_t>();
  Casts<bool, std::int32_t, std::int64_t, Eigen::half, float, double>::Register();
}

}  // namespace
