// Copies and fills, as tasks of streams.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_COPY_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_COPY_H_

#include <cstddef>
#include <cstdint>

#include "tests/pretend_gpu/context.h"

namespace pretend_gpu {

// Where a call says that an address lies. A call that says so ends the process if it lies elsewhere.
enum class Side { kAny, kHost, kDevice };

// Enqueues a copy of `bytes` bytes. Pageable host memory is read before this returns, and written before this
// returns; pinned memory is read and written when the stream gets there, and must live until then. With
// `wait`, this returns when the copy is done. Any thread.
void Copy(void* destination, Side destination_side, const void* source, Side source_side, std::size_t bytes,
          const StreamHandle& stream, bool wait);

// Enqueues the writing of `count` elements of `width` bytes each. Any thread.
void Fill(void* destination, std::uint64_t value, std::size_t width, std::size_t count,
          const StreamHandle& stream);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_COPY_H_
