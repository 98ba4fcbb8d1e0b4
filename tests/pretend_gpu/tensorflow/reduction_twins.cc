// Twins of TensorFlow's kernels that add all elements of a tensor, for tf.reduce_sum and tf.reduce_mean.
//
// Up to 4096 elements are added by one block. Up to 2^18 are added by several blocks, and CleanupSegments
// adds the blocks' sums. For more elements, and for sums along some dimensions, there are other kernels,
// without twins.
#include <cstddef>
#include <functional>
#include <iterator>

#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tensorflow/kernel_name.h"

// Declared as TensorFlow declares them: their names are part of the kernels' names, and the kernels'
// arguments have their layout.
namespace tensorflow {

template <class Stored, class Input, class Conversion, class Offset = std::ptrdiff_t>
struct TransformOutputIterator {
  Stored* at;
  Conversion conversion;
};

namespace functor {

template <class T>
struct Sum {};

template <class T, class Out = T>
struct DividesBy {
  T divisor;
};

template <class In, class Out, int threads, class Op>
PRETEND_GPU_NAME_OF_KERNEL void BlockReduceKernel(In, Out, int, Op,
                                                  typename std::iterator_traits<In>::value_type) {}

template <class In, class Out, class Op>
PRETEND_GPU_NAME_OF_KERNEL void CleanupSegments(In, Out, int, int, int, Op,
                                                typename std::iterator_traits<In>::value_type) {}

}  // namespace functor
}  // namespace tensorflow

namespace {

using pretend_gpu::Launch;
using tensorflow::functor::Sum;

// Where a sum goes, and what it is divided by on the way.
template <class T>
struct Result {
  T* at;
  T divisor;
};

template <class T>
using Mean = tensorflow::TransformOutputIterator<T, T, tensorflow::functor::DividesBy<T>>;

template <class T>
Result<T> ResultOf(T* out, std::size_t count) {
  return {pretend_gpu::At(out, count), T(1)};
}

template <class T>
Result<T> ResultOf(const Mean<T>& out, std::size_t count) {
  return {pretend_gpu::At(out.at, count), out.conversion.divisor};
}

// Each block adds the elements that its threads would read: they stride over the whole tensor.
template <class T, class Out>
std::function<void()> BindBlockReduce(const Launch& launch, void** arguments) {
  const int count = *static_cast<const int*>(arguments[2]);
  const T* in = pretend_gpu::At(*static_cast<const T**>(arguments[0]), static_cast<std::size_t>(count));
  const int blocks = static_cast<int>(launch.grid.x);
  const int threads = static_cast<int>(launch.block.x);
  const Result<T> out = ResultOf(*static_cast<const Out*>(arguments[1]), launch.grid.x);
  return [=] {
    for (int block = 0; block < blocks; block++) {
      T sum = T(0);
      for (int begin = block * threads; begin < count; begin += blocks * threads) {
        for (int i = begin; i < begin + threads && i < count; i++) sum += in[i];
      }
      out.at[block] = sum / out.divisor;
    }
  };
}

template <class T, class Out>
std::function<void()> BindCleanup(const Launch&, void** arguments) {
  const int columns = *static_cast<const int*>(arguments[3]);
  const int segment = *static_cast<const int*>(arguments[4]);
  const T* in =
      pretend_gpu::At(*static_cast<const T**>(arguments[0]), static_cast<std::size_t>(columns * segment));
  const Result<T> out = ResultOf(*static_cast<const Out*>(arguments[1]), static_cast<std::size_t>(columns));
  return [=] {
    for (int column = 0; column < columns; column++) {
      T sum = T(0);
      for (int i = 0; i < segment; i++) sum += in[column * segment + i];
      out.at[column] = sum / out.divisor;
    }
  };
}

template <class T>
void RegisterReductions() {
  using namespace tensorflow::functor;
  using pretend_gpu::RegisterUnderNameOf;
  constexpr int kThreads = 256;

  void (*sum)(T*, T*, int, Sum<T>, T) = &BlockReduceKernel<T*, T*, kThreads, Sum<T>>;
  RegisterUnderNameOf(reinterpret_cast<void*>(sum), &BindBlockReduce<T, T*>);
  void (*mean)(T*, Mean<T>, int, Sum<T>, T) = &BlockReduceKernel<T*, Mean<T>, kThreads, Sum<T>>;
  RegisterUnderNameOf(reinterpret_cast<void*>(mean), &BindBlockReduce<T, Mean<T>>);
  void (*last_sum)(T*, T*, int, int, int, Sum<T>, T) = &CleanupSegments<T*, T*, Sum<T>>;
  RegisterUnderNameOf(reinterpret_cast<void*>(last_sum), &BindCleanup<T, T*>);
  void (*last_mean)(T*, Mean<T>, int, int, int, Sum<T>, T) = &CleanupSegments<T*, Mean<T>, Sum<T>>;
  RegisterUnderNameOf(reinterpret_cast<void*>(last_mean), &BindCleanup<T, Mean<T>>);
}

__attribute__((constructor)) void RegisterTwins() {
  RegisterReductions<float>();
  RegisterReductions<double>();
}

}  // namespace
