#include "tests/pretend_gpu/fault.h"

#include <signal.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/point.h"

namespace pretend_gpu {
namespace {

struct Range {
  const char* begin;
  std::size_t bytes;
  std::function<std::string(const void*)> describe;
};

std::mutex mu;
struct sigaction others;  // what handled faults before; set once

// Guarded by mu.
std::vector<Range>& Ranges() {
  static auto* ranges = new std::vector<Range>;
  return *ranges;
}

// A fault in a forbidden range comes from an instruction of the program or of a twin, which holds none of our
// mutexes; so the handler may take them. Faults elsewhere go to whoever handled them before.
void OnFault(int, siginfo_t* info, void*) {
  const char* address = static_cast<const char*>(info->si_addr);
  std::string what;
  {
    std::lock_guard<std::mutex> lock(mu);
    for (const Range& range : Ranges()) {
      if (address >= range.begin && address < range.begin + range.bytes) what = range.describe(address);
    }
  }
  if (what.empty()) {
    sigaction(SIGSEGV, &others, nullptr);  // the instruction runs again, and faults there
    return;
  }
  if (StreamThread::Current() != nullptr) {
    End("the twin of a kernel touched address %p, which is %s, through an address that was not translated; "
        "pass "
        "pointers inside of structs through pretend_gpu::At when the kernel is bound",
        info->si_addr, what.c_str());
  }
  End("the host touched address %p, which is %s; only the device may, so copy the data with cuMemcpy",
      info->si_addr, what.c_str());
}

}  // namespace

char* ForbiddenRange(std::size_t bytes, int fd, std::function<std::string(const void*)> describe) {
  // The lower half of an address is no small number: then a number of 32 bits in the argument of a kernel,
  // with whatever lies beside it, is not taken for an address.
  constexpr std::uintptr_t kHalf = std::uintptr_t{1} << 32, kLower = kHalf / 4;
  char* const reserved = static_cast<char*>(
      mmap(nullptr, bytes + kHalf, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (reserved == MAP_FAILED) End("the host's view of %zu bytes cannot be mapped: %m", bytes);
  const std::uintptr_t skipped = (kLower - reinterpret_cast<std::uintptr_t>(reserved)) % kHalf;
  char* const begin = reserved + skipped;
  if (fd >= 0 && mmap(begin, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED) {
    End("the host's view of %zu bytes cannot be mapped: %m", bytes);
  }
  if (skipped > 0) munmap(reserved, skipped);
  const std::size_t end = (bytes + 4095) / 4096 * 4096;
  munmap(begin + end, kHalf - skipped);
  std::lock_guard<std::mutex> lock(mu);
  if (Ranges().empty()) {
    struct sigaction ours = {};
    ours.sa_sigaction = OnFault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &ours, &others);
  }
  Ranges().push_back({begin, bytes, std::move(describe)});
  return begin;
}

}  // namespace pretend_gpu
