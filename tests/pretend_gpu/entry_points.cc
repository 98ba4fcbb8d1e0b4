// cuGetProcAddress: functions by name. One that the stand-in does not have is found, too, and ends the
// process when it is called, with its name.
#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu {
namespace {

constexpr std::size_t kUnknown = 1000;

std::mutex mu;
std::array<std::string, kUnknown> unknown_names;  // guarded by mu
std::size_t unknown_count = 0;                    // guarded by mu

// One function for each unknown name, since a function does not know by which name it was asked for.
template <std::size_t I>
CUresult CallUnknown() {
  const Call call(unknown_names[I].c_str());
  End("the stand-in does not have this function; add it as README.md says");
}

template <std::size_t... I>
constexpr std::array<CUresult (*)(), sizeof...(I)> UnknownFunctions(std::index_sequence<I...>) {
  return {CallUnknown<I>...};
}

void* UnknownFunction(const std::string& name) {
  static constexpr auto functions = UnknownFunctions(std::make_index_sequence<kUnknown>());
  std::lock_guard<std::mutex> lock(mu);
  for (std::size_t i = 0; i < unknown_count; i++) {
    if (unknown_names[i] == name) return reinterpret_cast<void*>(functions[i]);
  }
  if (unknown_count == kUnknown)
    End("a program asks for %s, after %zu other unknown functions", name.c_str(), kUnknown);
  unknown_names[unknown_count] = name;
  return reinterpret_cast<void*>(functions[unknown_count++]);
}

// Returns the newest version of a function, or nullptr.
void* FindFunction(const std::string& name) {
  static void* self = [] {
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  for (const char* version : {"_v2", ""}) {
    if (void* found = dlsym(self == nullptr ? RTLD_DEFAULT : self, (name + version).c_str())) return found;
  }
  return nullptr;
}

}  // namespace
}  // namespace pretend_gpu

CUresult cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int* status) {
  *function = pretend_gpu::FindFunction(name);
  if (*function == nullptr) {
    pretend_gpu::Log("cuGetProcAddress: the stand-in does not have %s", name);
    *function = pretend_gpu::UnknownFunction(name);
  }
  constexpr int kFound = 0;
  if (status != nullptr) *status = kFound;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

CUresult cuGetExportTable(const void**, const CUuuid*) {
  const pretend_gpu::Call call(__func__);
  pretend_gpu::End(
      "a CUDA library of NVIDIA's is loaded, which needs the real driver; put the stand-in's folder "
      "first in LD_LIBRARY_PATH, and link no CUDA library statically");
}
