// The driver API: modules, functions, launches.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/global_variables.h"
#include "tests/pretend_gpu/launch.h"
#include "tests/pretend_gpu/module.h"
#include "tests/pretend_gpu/ptx_text.h"
#include "tests/pretend_gpu/sticky_error.h"

using pretend_gpu::End;
using pretend_gpu::FindGlobalVariable;
using pretend_gpu::Function;
using pretend_gpu::Functions;
using pretend_gpu::Module;
using pretend_gpu::Modules;

namespace {

pretend_gpu::Heap& HeapOf(const Module& module) {
  return pretend_gpu::HeapOf(pretend_gpu::Contexts().Get(module.context)->device());
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  PRETEND_GPU_ENTER_CONTEXT;
  pretend_gpu::CurrentContext();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto alone = pretend_gpu::CurrentContext()->LockAlone();
  auto made = std::make_shared<Module>();
  made->context = pretend_gpu::CurrentHandle();
  if (pretend_gpu::IsPtx(image)) {
    made->ptx = std::make_shared<const std::string>(static_cast<const char*>(image));
  }
  *module = static_cast<CUmodule>(Modules().Add(std::move(made)));
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, int*, void**) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto removed = Modules().Remove(module);
  std::lock_guard<std::mutex> lock(removed->mu);
  for (const auto& [name, function] : removed->functions) Functions().Remove(function);
  for (const auto& [name, variable] : removed->variables) HeapOf(*removed).Free(variable.address);
  return CUDA_SUCCESS;
}

// Which kernels have a twin is only seen when one is launched: programs may load more than they use.
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto alone = pretend_gpu::CurrentContext()->LockAlone();
  const auto found = Modules().Get(module);
  std::lock_guard<std::mutex> lock(found->mu);
  void*& handle = found->functions[name];
  if (handle == nullptr) {
    handle = Functions().Add(std::make_shared<Function>(Function{name, found->context, found->ptx}));
  }
  *function = static_cast<CUfunction>(handle);
  return CUDA_SUCCESS;
}

// Only the host reads and writes a global variable: an instruction that names one is not known.
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule module, const char* name) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto found = Modules().Get(module);
  std::lock_guard<std::mutex> lock(found->mu);
  Module::Variable& variable = found->variables[name];
  if (variable.address == nullptr) {
    const auto initial = found->ptx == nullptr ? std::nullopt : FindGlobalVariable(*found->ptx, name);
    void* allocated = initial ? HeapOf(*found).Allocate(initial->size()) : nullptr;
    if (allocated == nullptr) {
      found->variables.erase(name);
      pretend_gpu::Log("%s: there is no such variable, or no room for it", name);
      return CUDA_ERROR_NOT_FOUND;
    }
    std::memcpy(HeapOf(*found).space().DeviceView(allocated), initial->data(), initial->size());
    variable = {allocated, initial->size()};
  }
  if (address != nullptr) *address = reinterpret_cast<CUdeviceptr>(variable.address);
  if (bytes != nullptr) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, int) {
  PRETEND_GPU_ENTER_CONTEXT;
  Functions().Get(function);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, int, int) {
  PRETEND_GPU_ENTER_CONTEXT;
  Functions().Get(function);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  PRETEND_GPU_ENTER_CONTEXT;
  Functions().Get(function);
  constexpr int kMaxThreadsPerBlock = 0;
  *value = attribute == kMaxThreadsPerBlock ? 1024 : 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int, std::size_t) {
  PRETEND_GPU_ENTER_CONTEXT;
  Functions().Get(function);
  *blocks = 1;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              std::size_t shared_bytes, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto found = Functions().Get(function);
  if (extra != nullptr)
    End("kernel %s gets its arguments packed in `extra`; pass an array", found->name.c_str());
  if (found->context != pretend_gpu::CurrentHandle()) {
    End("kernel %s was loaded in %s, and %s is current; load the module in each context", found->name.c_str(),
        pretend_gpu::Contexts().Get(found->context)->Describe().c_str(),
        pretend_gpu::CurrentContext()->Describe().c_str());
  }
  const bool launched =
      pretend_gpu::LaunchKernel(found->name, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                                shared_bytes, pretend_gpu::StreamOf(stream), arguments, found->ptx);
  return launched ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
