// Buffer: where a tensor lies: its address, the kind of memory, and the stream that orders what happens to
// it.
//
// Place in the stack: a request names its buffers in these terms (kernels/engine/request.h). Host memory is
// the default kind. A buffer of any other kind goes through the engine by way of a bounce buffer
// (kernels/engine/devices/bounce_buffer.h).
#ifndef TF_SMDDP_KERNELS_MEMORY_BUFFER_H_
#define TF_SMDDP_KERNELS_MEMORY_BUFFER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/common/status.h"

namespace tf_smddp {

class MemoryKind;

template <typename Address>
struct BasicBuffer {
  BasicBuffer() = default;
  BasicBuffer(Address host_memory) : data(host_memory) {}  // NOLINT(runtime/explicit)
  BasicBuffer(Address data, MemoryKind* kind, void* stream) : data(data), kind(kind), stream(stream) {}

  bool on_host() const { return kind == nullptr; }

  Address data = nullptr;      // the engine does not read or write it unless on_host()
  MemoryKind* kind = nullptr;  // nullptr: host memory; else it outlives the engine
  void* stream = nullptr;      // of `kind`; host memory has none
};

using InputBuffer = BasicBuffer<const void*>;
using Buffer = BasicBuffer<void*>;

// A kind of memory that the CPU may not touch, such as a GPU's. Its copies are asynchronous: each is put on a
// stream, which does one thing after the other.
class MemoryKind {
 public:
  // Called by any thread when a copy has ended: OK, or why the bytes are not there. It returns quickly.
  using Ended = std::function<void(const Status&)>;

  virtual ~MemoryKind() = default;

  // For messages: "GPU 0".
  virtual std::string name() const = 0;
  // For messages that compare ranks.
  virtual std::string Describe() const { return name(); }

  // The device, in all processes of the host; 0 if the memory is no device's.
  virtual std::uint64_t id() const { return 0; }
  // A number of the board that it is on, or a part of (MIG), on this host; 0: it is not known.
  virtual std::uint64_t board() const { return 0; }

  // Puts a copy of `bytes` bytes, at least one, on `stream`, behind all that was put there before. Does not
  // wait for it. If OK is returned, `ended` is called exactly once, perhaps before this returns, and the
  // memory of the host stays valid until then. If the copy cannot be put on the stream, returns an error, and
  // never calls `ended`. Any thread.
  virtual Status CopyToHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) = 0;
  virtual Status CopyFromHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) = 0;

  // Puts a copy within this memory on the stream of `to`, behind all that is on the stream of `from`.
  virtual Status Copy(const InputBuffer& from, const Buffer& to, std::uint64_t bytes, Ended ended) = 0;

  // Returns a function that says whether anything that is to write to the buffers of `stream` is under way;
  // nullptr if that cannot be known. It may be called after their end. Any thread.
  virtual std::function<bool()> Writing(void* /*stream*/) const { return nullptr; }

  // Whether the host's memory must be pinned for copies, which would wait otherwise. Pin prepares
  // [data, data + bytes) for all copies until Unpin. Any thread.
  virtual bool pins() const { return false; }
  virtual Status Pin(void*, std::uint64_t) { return {}; }
  virtual void Unpin(void*) {}
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_MEMORY_BUFFER_H_
