// The API for programs and libraries that know the stand-in: roles, policies, and the twins of kernels.
//
// A twin is the host version of a GPU kernel. It is registered by the kernel's name, and runs on the thread
// of the stream on which the kernel is launched:
//
//   static void Scale(float* y, const float* x, float a, int n) { ... pretend_gpu::CurrentThread() ... }
//   static pretend_gpu::Register scale("scale", pretend_gpu::EachThread(Scale));
//
// It is linked into the program, or into a library that PRETEND_GPU_KERNELS names.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_PRETEND_GPU_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_PRETEND_GPU_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace pretend_gpu {

struct Dim {
  unsigned x, y, z;
};

struct Launch {
  const char* name;
  Dim grid, block;
  unsigned shared_bytes;
};

// Called by the thread that launches. It must copy what it needs of the arguments, since CUDA copies them at
// the launch; what it returns runs on the stream's thread.
using Bind = std::function<std::function<void()>(const Launch& launch, void** arguments)>;

}  // namespace pretend_gpu

#define PRETEND_GPU_API extern "C" __attribute__((visibility("default")))

// All functions: any thread.

// Gives a stream (CUstream or cudaStream_t) the role that policies know it by. Without it, the role is the
// name of the library or program that made the stream, such as "libtensorflow_framework.so.2".
PRETEND_GPU_API void pretend_gpu_set_stream_role(void* stream, const char* role);

// Replaces PRETEND_GPU_POLICY for the tasks that are enqueued from now on.
PRETEND_GPU_API void pretend_gpu_set_policy(const char* policy);

// After `calls` more calls that use the device, it is as after a kernel's access to an illegal address: each
// call that uses it returns CUDA_ERROR_ILLEGAL_ADDRESS and does nothing, and its streams drop what they have
// still to do. A GPU stays so until the process ends; here, fewer than 0 calls make it whole again, for the
// next test.
PRETEND_GPU_API void pretend_gpu_break_device(int device, int calls);

// Registers a twin. A name that ends in `*` stands for all names that begin so.
PRETEND_GPU_API void pretend_gpu_register_kernel(const char* name, const pretend_gpu::Bind* bind);

// Returns where the twin that is being bound finds [address, address + bytes). That must be allocated device
// memory that the kernel's device may touch, or pinned host memory, or the process ends. Only while a twin is
// bound: the memory counts as used until the kernel is done.
PRETEND_GPU_API void* pretend_gpu_translate(const void* address, std::size_t bytes);

// Returns whether `address` is device memory.
PRETEND_GPU_API int pretend_gpu_is_device_memory(const void* address);

// Returns how many kernels of this name were launched.
PRETEND_GPU_API std::uint64_t pretend_gpu_launches(const char* name);

namespace pretend_gpu {

// Translates a pointer to `count` elements, for kernels whose pointers are inside of structs.
template <class T>
T* At(T* pointer, std::size_t count = 1) {
  return static_cast<T*>(pretend_gpu_translate(
      const_cast<const void*>(static_cast<const volatile void*>(pointer)), count * sizeof(T)));
}

// Which of a kernel's threads runs.
struct ThreadIndex {
  Dim grid, block, block_index, thread_index;
};

inline ThreadIndex*& CurrentThread() {
  thread_local ThreadIndex* current = nullptr;
  return current;
}

// Calls a function for each thread of a kernel, one after the other.
template <class Function>
void ForEachThread(Dim grid, Dim block, Function function) {
  ThreadIndex index{grid, block, {0, 0, 0}, {0, 0, 0}};
  Dim& b = index.block_index;
  Dim& t = index.thread_index;
  for (b.z = 0; b.z < grid.z; b.z++)
    for (b.y = 0; b.y < grid.y; b.y++)
      for (b.x = 0; b.x < grid.x; b.x++)
        for (t.z = 0; t.z < block.z; t.z++)
          for (t.y = 0; t.y < block.y; t.y++)
            for (t.x = 0; t.x < block.x; t.x++) function(index);
}

namespace internal {

template <class T>
T Argument(void* argument) {
  T value = *static_cast<T*>(argument);
  if constexpr (std::is_pointer_v<T>) {
    if (value != nullptr) value = static_cast<T>(pretend_gpu_translate(value, 1));
  }
  return value;
}

template <class... Arguments, std::size_t... I>
std::tuple<Arguments...> ArgumentsOf(void** arguments, std::index_sequence<I...>) {
  return std::tuple<Arguments...>(Argument<Arguments>(arguments[I])...);
}

}  // namespace internal

// Makes a twin of a function that does what one thread of the kernel does. The threads run one after the
// other: kernels with __syncthreads need twins of their own. Only the first byte of each pointer is checked.
template <class... Arguments>
Bind EachThread(void (*kernel)(Arguments...)) {
  return [kernel](const Launch& launch, void** arguments) -> std::function<void()> {
    auto values = internal::ArgumentsOf<Arguments...>(arguments, std::index_sequence_for<Arguments...>{});
    return [kernel, values, grid = launch.grid, block = launch.block] {
      ForEachThread(grid, block, [&](ThreadIndex& index) {
        CurrentThread() = &index;
        std::apply(kernel, values);
      });
      CurrentThread() = nullptr;
    };
  };
}

struct Register {
  Register(const char* name, const Bind& bind) { pretend_gpu_register_kernel(name, &bind); }
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_PRETEND_GPU_H_
