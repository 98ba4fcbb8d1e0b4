// Twins of those of TensorFlow's kernels that are expressions of Eigen's.
//
// TensorFlow assigns an expression to a tensor on a GpuDevice. From that, a compiler for CUDA makes a kernel
// EigenMetaKernel<Evaluator, Index>. Its arguments are the expression's evaluator, by value, and the number
// of elements. In this file the same statements are compiled by the host's compiler, for a GpuDevice of our
// own. Its executor does not execute: it registers a twin under the name that the kernel has.
//
// EIGEN_AVOID_STL_ARRAY (BUILD) makes names and layouts those of a compilation for CUDA.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tensorflow/kernel_name.h"

namespace Eigen {
// Eigen declares it, and defines it for CUDA only.
struct GpuDevice {};
}  // namespace Eigen

#include "unsupported/Eigen/CXX11/Tensor"

namespace Eigen::internal {

// Stands for the kernel.
template <class Evaluator, class Index>
PRETEND_GPU_NAME_OF_KERNEL void EigenMetaKernel(Evaluator, Index) {}

// TensorFlow's functor for tf.fill. The value is in device memory.
template <class T>
struct scalar_const_op {
  const T* value;
  T operator()() const { return *value; }
};

template <class T>
struct functor_traits<scalar_const_op<T>> {
  enum { Cost = 1, PacketAccess = false, IsRepeatable = true };
};

// Its functors for ops of which one operand is a scalar, in device memory.
template <class Out, class In, class Binary>
struct scalar_left {
  const In* scalar;
  Out operator()(const In& x) const { return Binary()(*scalar, x); }
};

template <class Out, class In, class Binary>
struct scalar_right {
  const In* scalar;
  Out operator()(const In& x) const { return Binary()(x, *scalar); }
};

template <class Out, class In, class Binary>
struct functor_traits<scalar_left<Out, In, Binary>> : functor_traits<scalar_const_op<In>> {};

template <class Out, class In, class Binary>
struct functor_traits<scalar_right<Out, In, Binary>> : functor_traits<scalar_const_op<In>> {};

template <class Evaluator, class Index>
std::function<void()> BindExpression(const pretend_gpu::Launch&, void** arguments) {
  struct alignas(Evaluator) Bytes {
    unsigned char at[sizeof(Evaluator)];
  };
  const auto bytes = std::make_shared<Bytes>();
  std::memcpy(bytes->at, arguments[0], sizeof(Evaluator));
  // The pointers in an evaluator are aligned as pointers are; a size is no address of device memory.
  for (std::size_t i = 0; i + sizeof(void*) <= sizeof(Evaluator); i += sizeof(void*)) {
    void* word = nullptr;
    std::memcpy(&word, bytes->at + i, sizeof(word));
    if (!pretend_gpu_is_device_memory(word)) continue;
    word = pretend_gpu_translate(word, 1);
    std::memcpy(bytes->at + i, &word, sizeof(word));
  }
  const Index count = *static_cast<const Index*>(arguments[1]);
  return [bytes, count] {
    auto& evaluator = *reinterpret_cast<Evaluator*>(bytes->at);
    for (Index i = 0; i < count; i++) evaluator.evalScalar(i);
  };
}

template <class Expression, bool Vectorizable, TiledEvaluation Tiling>
class TensorExecutor<Expression, GpuDevice, Vectorizable, Tiling> {
 public:
  static void run(const Expression&, const GpuDevice&) {
    using Evaluator = TensorEvaluator<Expression, GpuDevice>;
    using Index = typename Expression::Index;
    void (*kernel)(Evaluator, Index) = &EigenMetaKernel<Evaluator, Index>;
    pretend_gpu::RegisterUnderNameOf(reinterpret_cast<void*>(kernel), &BindExpression<Evaluator, Index>);
  }
};

}  // namespace Eigen::internal

namespace {

using Eigen::bfloat16;
using Eigen::DenseIndex;
using Eigen::GpuDevice;
using Eigen::half;

// TensorFlow's tensors in an expression (tensor_types.h). The index has 32 bits where the functor asks for
// that.
template <class T, int rank = 1, class Index = DenseIndex>
using Tensor = Eigen::TensorMap<Eigen::Tensor<T, rank, Eigen::RowMajor, Index>, Eigen::Aligned>;

template <class T>
using Scalar =
    Eigen::TensorMap<Eigen::TensorFixedSize<const T, Eigen::Sizes<>, Eigen::RowMajor>, Eigen::Aligned>;

template <int rank>
using Sizes = Eigen::DSizes<int, rank>;

// Slices, and Tile and BroadcastTo, of so many dimensions.
template <class T, int rank>
void RegisterShapes(const GpuDevice& gpu) {
  Tensor<T, rank, int> y(nullptr, Sizes<rank>());
  const Tensor<const T, rank, int> x(nullptr, Sizes<rank>());
  y.device(gpu) = x.slice(Sizes<rank>(), Sizes<rank>());
  y.device(gpu) = x.broadcast(Eigen::array<int, rank>());
}

// The statements of TensorFlow's functors. Only their types matter.
template <class T>
void RegisterMemory(const GpuDevice& gpu) {
  Tensor<T, 1, int> filled(nullptr, 0);
  Tensor<T> y(nullptr, 0);
  const Tensor<const T> x(nullptr, 0);
  const Scalar<T> rate(nullptr);

  // Fill
  filled.device(gpu) = filled.nullaryExpr(Eigen::internal::scalar_const_op<T>{nullptr});
  // ZerosLike, OnesLike
  filled.device(gpu) = filled.constant(T(0));
  // Assign, AssignAdd and AssignSub of variables
  y.device(gpu) = x;
  y.device(gpu) += x;
  y.device(gpu) -= x;
  // AddN of two to four tensors
  y.device(gpu) = x + x;
  y.device(gpu) = x + x + x;
  y.device(gpu) = x + x + x + x;
  // ApplyGradientDescent
  const Eigen::array<DenseIndex, 1> count = {0};
  y.device(gpu) -= rate.reshape(Eigen::Sizes<1>()).broadcast(count) * x;

  RegisterShapes<T, 1>(gpu);
  RegisterShapes<T, 2>(gpu);
  RegisterShapes<T, 3>(gpu);
}

template <class From, class To>
void RegisterCast(const GpuDevice& gpu) {
  Tensor<To> y(nullptr, 0);
  const Tensor<const From> x(nullptr, 0);
  y.device(gpu) = x.template cast<To>();
}

template <class Op>
void RegisterBinary(const GpuDevice& gpu) {
  using Eigen::internal::scalar_left;
  using Eigen::internal::scalar_right;
  Tensor<bfloat16, 1, int> y(nullptr, 0);
  const Tensor<const bfloat16, 1, int> x(nullptr, 0);
  y.device(gpu) = x.binaryExpr(x, Op());
  y.device(gpu) = x.unaryExpr(scalar_left<bfloat16, bfloat16, Op>());
  y.device(gpu) = x.unaryExpr(scalar_right<bfloat16, bfloat16, Op>());
}

// For bfloat16 the kernel generator has made nothing (generated_twins.cc).
void RegisterBfloat16(const GpuDevice& gpu) {
  using namespace Eigen::internal;
  Tensor<bfloat16, 1, int> y(nullptr, 0);
  const Tensor<const bfloat16, 1, int> x(nullptr, 0);

  RegisterBinary<scalar_sum_op<bfloat16, bfloat16>>(gpu);
  RegisterBinary<scalar_difference_op<bfloat16, bfloat16>>(gpu);
  RegisterBinary<scalar_product_op<bfloat16, bfloat16>>(gpu);
  RegisterBinary<scalar_quotient_op<bfloat16, bfloat16>>(gpu);
  y.device(gpu) = x.unaryExpr(scalar_opposite_op<bfloat16>());
  y.device(gpu) = x.unaryExpr(scalar_square_op<bfloat16>());
  RegisterCast<int, bfloat16>(gpu);
  RegisterCast<std::int64_t, bfloat16>(gpu);
  RegisterCast<float, bfloat16>(gpu);
  RegisterCast<double, bfloat16>(gpu);
  RegisterCast<half, bfloat16>(gpu);
  RegisterCast<bfloat16, float>(gpu);
  RegisterCast<bfloat16, double>(gpu);
  RegisterCast<bfloat16, half>(gpu);
}

__attribute__((constructor)) void RegisterTwins() {
  const GpuDevice gpu;
  RegisterMemory<float>(gpu);
  RegisterMemory<double>(gpu);
  RegisterMemory<half>(gpu);
  RegisterMemory<bfloat16>(gpu);
  RegisterMemory<std::int64_t>(gpu);
  RegisterBfloat16(gpu);
}

}  // namespace
