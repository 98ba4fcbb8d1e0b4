// Device memory: where it lies, what is allocated there, and from where it may be touched.
//
// A space is a memfd that is mapped twice. The addresses that the program has belong to the host's view,
// which faults. The tasks of streams use the device's view.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_MEMORY_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/pretend_gpu/uses.h"

namespace pretend_gpu {

struct Allocation {
  std::uintptr_t address;
  std::size_t bytes;  // as asked for
  std::uint64_t id;
  int device;
  std::shared_ptr<Uses> uses = std::make_shared<Uses>();

  // Returns "allocation 7 (4096 bytes at 0x..., device 0)".
  std::string Describe() const;
};

// All methods: any thread.
class Space {
 public:
  // Maps `bytes` of `fd`. A space stays for good.
  Space(int device, int fd, std::size_t bytes);

  bool Contains(const void* address) const {
    const char* at = static_cast<const char*>(address);
    return at >= host_view_ && at < host_view_ + bytes_;
  }

  // Returns where tasks find what the program knows as `address`.
  char* DeviceView(const void* address) const {
    return device_view_ + (static_cast<const char*>(address) - host_view_);
  }

  void Add(std::shared_ptr<Allocation> allocation);

  // Forgets the allocation that begins at `address`.
  void Remove(const void* address);

  // Returns the allocation that holds `address`, or nullptr.
  std::shared_ptr<Allocation> Find(const void* address);

  // Returns "allocation 7 (...), byte 12", "memory that was freed: allocation 6 (...)", or that there was
  // none.
  std::string Describe(const void* address);

  char* host_view() const { return host_view_; }
  int device() const { return device_; }
  std::size_t bytes() const { return bytes_; }

 private:
  using ByAddress = std::map<std::uintptr_t, std::shared_ptr<Allocation>>;
  static ByAddress::iterator Holding(ByAddress& allocations, const void* address);

  const int device_;
  const std::size_t bytes_;
  char* device_view_;
  char* host_view_;
  std::mutex mu_;
  ByAddress live_;   // guarded by mu_
  ByAddress freed_;  // what was freed and is not in use again; guarded by mu_
};

// Returns the space that holds `address`, or nullptr if it is no device memory. Any thread.
Space* SpaceOf(const void* address);

// Returns the allocation that holds [address, address + bytes), which lies in `space`. Ends the process if
// there is none; `what` is the role of the address in the call, such as "destination".
std::shared_ptr<Allocation> AllocationOf(Space* space, const void* address, std::size_t bytes,
                                         const char* what);

// The content of memory before it is written, and after it is freed: not-a-number in all floating-point
// types, and -1 in integers; then a large number, and -2.
inline constexpr unsigned char kFresh = 0xFF;
inline constexpr unsigned char kFreed = 0xFE;

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_MEMORY_H_
