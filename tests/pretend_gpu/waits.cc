#include "tests/pretend_gpu/waits.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <set>
#include <string>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {
namespace {

constexpr int kCallers = 3;

std::string Describe(const Dl_info& info, const void* code) {
  const std::string file = info.dli_fname;
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx",
                reinterpret_cast<std::uintptr_t>(code) - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  return file.substr(file.rfind('/') + 1) + offset;
}

// Returns what the wait is known by: the callers outside of this library.
std::string Callers() {
  Dl_info own, info;
  dladdr(reinterpret_cast<void*>(&LeavesOutWait), &own);
  void* frames[24];
  const int count = backtrace(frames, 24);
  std::string callers;
  int found = 0;
  for (int i = 0; i < count && found < kCallers; i++) {
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr || info.dli_fbase == own.dli_fbase)
      continue;
    callers += (found++ == 0 ? "" : " ") + Describe(info, frames[i]);
  }
  return callers;
}

void Add(const std::string& wait) {
  static std::mutex mu;
  static auto* const known = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mu);
  if (!known->insert(wait).second) return;
  std::ofstream out(GetSettings().waits, std::ios::app);
  out << wait + "\n" << std::flush;
  if (!out) End("PRETEND_GPU_WAITS names %s, which cannot be written", GetSettings().waits.c_str());
}

}  // namespace

bool LeavesOutWait() {
  const Settings& settings = GetSettings();
  if (settings.waits.empty() && settings.leave_out.empty()) return false;
  const std::string wait = Callers();
  if (!settings.waits.empty()) Add(wait);
  return wait == settings.leave_out;
}

}  // namespace pretend_gpu
