// The driver API: memory, copies, fills.
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/copy.h"
#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/host_memory.h"
#include "tests/pretend_gpu/memory.h"
#include "tests/pretend_gpu/settings.h"
#include "tests/pretend_gpu/sticky_error.h"

using pretend_gpu::Copy;
using pretend_gpu::CurrentContext;
using pretend_gpu::End;
using pretend_gpu::Fill;
using pretend_gpu::Side;
using pretend_gpu::Space;
using pretend_gpu::SpaceOf;
using pretend_gpu::StreamOf;

namespace {

void* Address(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  pretend_gpu::Heap& heap = pretend_gpu::HeapOf(CurrentContext()->device());
  *total_bytes = heap.space().bytes();
  *free_bytes = heap.free_bytes();
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto context = CurrentContext();
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* allocated = pretend_gpu::HeapOf(context->device()).Allocate(bytes);
  *address = reinterpret_cast<CUdeviceptr>(allocated);
  pretend_gpu::Log("%zu bytes at %p", bytes, allocated);
  return allocated == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  PRETEND_GPU_ENTER_CONTEXT;
  if (address == 0) return CUDA_SUCCESS;
  const Space* space = SpaceOf(Address(address));
  if (space == nullptr) End("%p is no device memory; free what cuMemAlloc returned", Address(address));
  const auto alone = CurrentContext()->LockAlone();
  pretend_gpu::HeapOf(space->device()).Free(Address(address));
  pretend_gpu::Log("%p", Address(address));
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  PRETEND_GPU_ENTER_CONTEXT;
  Space* space = SpaceOf(Address(address));
  const auto allocation = space == nullptr ? nullptr : space->Find(Address(address));
  if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation->address;
  if (bytes != nullptr) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  PRETEND_GPU_ENTER_CONTEXT;
  Space* space = SpaceOf(Address(address));
  const auto allocation = space == nullptr ? nullptr : space->Find(Address(address));
  const bool pinned = space == nullptr && pretend_gpu::PinnedUses(Address(address), 1) != nullptr;
  if (allocation == nullptr && !pinned) return CUDA_ERROR_INVALID_VALUE;
  const int device = allocation == nullptr ? 0 : allocation->device;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<void**>(value) = pretend_gpu::PrimaryContext(device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!pinned) return CUDA_ERROR_INVALID_VALUE;
      [[fallthrough]];
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<unsigned*>(value) = 0;
      return CUDA_SUCCESS;
    default:
      break;
  }
  if (pinned) return CUDA_ERROR_NOT_SUPPORTED;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(value) = allocation->id;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = allocation->address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = allocation->bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr address) {
  PRETEND_GPU_ENTER_CONTEXT;
  for (unsigned i = 0; i < count; i++) {
    const CUresult error = cuPointerGetAttribute(values[i], attributes[i], address);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

// A device has one pool: its heap, which keeps nothing back.
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  PRETEND_GPU_ENTER;
  if (device < 0 || device >= pretend_gpu::GetSettings().devices) return CUDA_ERROR_INVALID_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(static_cast<std::intptr_t>(device) + 1);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void*) {
  PRETEND_GPU_ENTER;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void* value) {
  PRETEND_GPU_ENTER;
  *static_cast<std::uint64_t*>(value) = 0;
  return CUDA_SUCCESS;
}

// The memory is there at once.
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool, CUstream) {
  PRETEND_GPU_ENTER_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto device = static_cast<int>(reinterpret_cast<std::intptr_t>(pool) - 1);
  *address = reinterpret_cast<CUdeviceptr>(pretend_gpu::HeapOf(device).Allocate(bytes));
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  const Space* space = SpaceOf(Address(address));
  if (space == nullptr) End("%p is no device memory; free what the pool returned", Address(address));
  pretend_gpu::Task task;
  task.run = [address, device = space->device()] { pretend_gpu::HeapOf(device).Free(Address(address)); };
  Enqueue(StreamOf(stream), std::move(task));
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  *address = pretend_gpu::AllocateHost(bytes);
  return *address == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** address, std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuMemHostAlloc(address, bytes, 0);
}

CUresult cuMemFreeHost(void* address) {
  PRETEND_GPU_ENTER_CONTEXT;
  pretend_gpu::FreeHost(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  pretend_gpu::RegisterHost(address, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* address) {
  PRETEND_GPU_ENTER;
  pretend_gpu::UnregisterHost(address);  // on a broken device, too: the host's memory outlives it
  return pretend_gpu::CountCall();
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  if (pretend_gpu::PinnedUses(host, 1) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  const bool both_on_device = SpaceOf(Address(to)) != nullptr && SpaceOf(Address(from)) != nullptr;
  Copy(Address(to), Side::kAny, Address(from), Side::kAny, bytes, StreamOf(nullptr), !both_on_device);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(Address(to), Side::kAny, Address(from), Side::kAny, bytes, StreamOf(stream), false);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(Address(to), Side::kDevice, from, Side::kHost, bytes, StreamOf(nullptr), true);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(to, Side::kHost, Address(from), Side::kDevice, bytes, StreamOf(nullptr), true);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(Address(to), Side::kDevice, Address(from), Side::kDevice, bytes, StreamOf(nullptr), false);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(Address(to), Side::kDevice, from, Side::kHost, bytes, StreamOf(stream), false);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(to, Side::kHost, Address(from), Side::kDevice, bytes, StreamOf(stream), false);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Copy(Address(to), Side::kDevice, Address(from), Side::kDevice, bytes, StreamOf(stream), false);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           std::size_t bytes, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  for (const auto& [address, context] : {std::pair(to, to_context), std::pair(from, from_context)}) {
    const Space* space = SpaceOf(Address(address));
    const auto named = pretend_gpu::Contexts().Get(context);
    if (space != nullptr && space->device() != named->device()) {
      End("%p is memory of device %d, and the call says that it is of %s; pass the context of its device",
          Address(address), space->device(), named->Describe().c_str());
    }
  }
  Copy(Address(to), Side::kDevice, Address(from), Side::kDevice, bytes, StreamOf(stream), false);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      std::size_t bytes) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, nullptr);
}

// Fills return before they are done, also those without Async in their names.
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Fill(Address(to), value, 1, count, StreamOf(stream));
  return CUDA_SUCCESS;
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Fill(Address(to), value, 2, count, StreamOf(stream));
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  Fill(Address(to), value, 4, count, StreamOf(stream));
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuMemsetD8Async(to, value, count, nullptr);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuMemsetD16Async(to, value, count, nullptr);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuMemsetD32Async(to, value, count, nullptr);
}
