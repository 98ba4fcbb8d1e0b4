#include "tests/pretend_gpu/device.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {
namespace {

constexpr int kFirstPciBus = 0x10;

int PciBusOf(int device) { return kFirstPciBus + device / GetSettings().slices; }

}  // namespace

bool IsDevice(int device) { return device >= 0 && device < GetSettings().devices; }

Heap& HeapOf(int device) {
  static auto* mu = new std::mutex;
  static auto* heaps = new std::map<int, Heap*>;
  std::lock_guard<std::mutex> lock(*mu);
  Heap*& heap = (*heaps)[device];
  if (heap == nullptr) heap = new Heap(device, GetSettings().memory_bytes);
  return *heap;
}

int AttributeOf(int attribute, int device) {
  static const auto* table = new std::unordered_map<int, int>{
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1410000},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1215000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 40 << 20},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 167936},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 166912},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
  };
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) return PciBusOf(device);
  const auto found = table->find(attribute);
  if (found != table->end()) return found->second;
  Log("attribute %d is not in the table, so it is 0", attribute);
  return 0;
}

std::string NameOf(int) { return "Pretend GPU"; }

std::string PciBusIdOf(int device) {
  char text[16];
  std::snprintf(text, sizeof(text), "0000:%02x:00.0", PciBusOf(device));
  return text;
}

void WriteUuid(int device, char (&uuid)[16]) {
  std::memcpy(uuid, "pretend GPU    ", 15);
  uuid[15] = static_cast<char>(device);
}

}  // namespace pretend_gpu
