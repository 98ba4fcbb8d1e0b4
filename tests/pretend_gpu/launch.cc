#include "tests/pretend_gpu/launch.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/host_memory.h"
#include "tests/pretend_gpu/memory.h"
#include "tests/pretend_gpu/peer_access.h"
#include "tests/pretend_gpu/ptx.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {
namespace {

std::mutex mu;

// Guarded by mu, as is Launches.
std::map<std::string, std::shared_ptr<const Bind>>& Twins() {
  static auto* twins = new std::map<std::string, std::shared_ptr<const Bind>>;
  return *twins;
}

std::map<std::string, std::uint64_t>& Launches() {
  static auto* launches = new std::map<std::string, std::uint64_t>;
  return *launches;
}

// The kernel that this thread binds.
struct Binding {
  int device;
  std::string use;
  std::vector<Use>* uses;
};
thread_local const Binding* binding = nullptr;

void LoadTwins() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string& files = GetSettings().kernels;
    for (std::size_t at = 0; at < files.size();) {
      const std::size_t end = std::min(files.find(':', at), files.size());
      const std::string file = files.substr(at, end - at);
      if (!file.empty() && dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
        End("PRETEND_GPU_KERNELS names %s, which cannot be loaded: %s", file.c_str(), dlerror());
      }
      at = end + 1;
    }
  });
}

std::string Demangle(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

// Returns the twin, or nullptr. mu is held.
std::shared_ptr<const Bind> FindTwin(const std::string& name) {
  if (const auto found = Twins().find(name); found != Twins().end()) return found->second;
  for (const auto& [pattern, bind] : Twins()) {
    const std::size_t length = pattern.size() - 1;
    if (pattern.back() == '*' && name.compare(0, length, pattern, 0, length) == 0) return bind;
  }
  return nullptr;
}

// Returns what the module's PTX says, or nullptr. A program may launch the kernel often. mu is held.
std::shared_ptr<const Bind> FindPtx(const std::shared_ptr<const std::string>& ptx, const std::string& name) {
  static auto* known = new std::map<std::pair<std::string, std::string>, std::shared_ptr<const Bind>>;
  const auto [twin, is_new] = known->try_emplace({*ptx, name}, nullptr);
  if (is_new) twin->second = TwinOfPtx(*ptx, name);
  return twin->second;
}

bool SizesAreValid(Dim grid, Dim block) {
  const bool some = grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0;
  return some && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535 && block.x <= 1024 &&
         block.y <= 1024 && block.z <= 64 && std::uint64_t{block.x} * block.y * block.z <= 1024;
}

}  // namespace

bool LaunchKernel(const std::string& name, Dim grid, Dim block, unsigned shared_bytes,
                  const StreamHandle& stream, void** arguments,
                  const std::shared_ptr<const std::string>& ptx) {
  if (stream.context != CurrentHandle()) {
    End("kernel %s is launched on %s of %s while %s is current; make the stream's context current first",
        Demangle(name).c_str(), stream.stream->Describe().c_str(),
        Contexts().Get(stream.context)->Describe().c_str(), CurrentContext()->Describe().c_str());
  }
  LoadTwins();
  std::shared_ptr<const Bind> twin;
  std::map<std::string, std::uint64_t>::const_iterator counted;
  {
    std::lock_guard<std::mutex> lock(mu);
    twin = FindTwin(name);
    if (twin == nullptr && ptx != nullptr) twin = FindPtx(ptx, name);
    counted = Launches().try_emplace(name, 0).first;
    if (twin != nullptr) Launches()[name]++;
  }
  if (twin == nullptr) {
    End("kernel %s [%s] has no twin; register one (pretend_gpu.h), and name its library in "
        "PRETEND_GPU_KERNELS",
        Demangle(name).c_str(), name.c_str());
  }
  if (!SizesAreValid(grid, block)) return false;
  Log("kernel %s, grid %u,%u,%u, block %u,%u,%u, on %s", name.c_str(), grid.x, grid.y, grid.z, block.x,
      block.y, block.z, stream.stream->Describe().c_str());
  Task task;
  const Binding ours{stream.stream->device(), "kernel " + name + " on " + stream.stream->Describe(),
                     &task.uses};
  binding = &ours;
  task.run = (*twin)({counted->first.c_str(), grid, block, shared_bytes}, arguments);
  binding = nullptr;
  task.works = true;
  Enqueue(stream, std::move(task));
  return true;
}

}  // namespace pretend_gpu

using pretend_gpu::Space;

void pretend_gpu_register_kernel(const char* name, const pretend_gpu::Bind* bind) {
  std::lock_guard<std::mutex> lock(pretend_gpu::mu);
  pretend_gpu::Twins()[name] = std::make_shared<const pretend_gpu::Bind>(*bind);
}

int pretend_gpu_is_device_memory(const void* address) { return pretend_gpu::SpaceOf(address) != nullptr; }

std::uint64_t pretend_gpu_launches(const char* name) {
  std::lock_guard<std::mutex> lock(pretend_gpu::mu);
  const auto found = pretend_gpu::Launches().find(name);
  return found == pretend_gpu::Launches().end() ? 0 : found->second;
}

void* pretend_gpu_translate(const void* address, std::size_t bytes) {
  using pretend_gpu::binding;
  if (binding == nullptr) pretend_gpu::End("pretend_gpu_translate was called while no twin is bound");
  Space* space = pretend_gpu::SpaceOf(address);
  if (space == nullptr) {
    auto uses = pretend_gpu::PinnedUses(address, bytes);
    if (uses == nullptr) {
      pretend_gpu::End(
          "the %s has the argument %p, which is pageable host memory; pass device memory, or pin it",
          binding->use.c_str(), address);
    }
    binding->uses->emplace_back(std::move(uses), binding->use);
    return const_cast<void*>(address);
  }
  const auto allocation = pretend_gpu::AllocationOf(space, address, bytes, "kernel argument");
  if (!pretend_gpu::CanAccess(binding->device, allocation->device)) {
    pretend_gpu::End("the %s has the argument %p, %s; call cuCtxEnablePeerAccess for that device first",
                     binding->use.c_str(), address, allocation->Describe().c_str());
  }
  binding->uses->emplace_back(allocation->uses, binding->use);
  return space->DeviceView(address);
}
