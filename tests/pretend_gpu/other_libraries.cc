// The functions of NVML and cuDNN that programs call when they make a device or compile for it, and texts for
// errors of the mathematical libraries. All else of them is missing: a program sees that when it looks the
// function up.
#include <cstddef>
#include <string>

#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/settings.h"

namespace {

constexpr int kNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED
constexpr int kNotFound = 6;      // NVML_ERROR_NOT_FOUND
constexpr const char* kNoText = "an error of a library that the pretend GPU does not have";

// A handle of NVML is a device's place in this table.
int devices[16];

// The address is the handle of cuDNN.
int cudnn;

// Major, minor, patch. A program refuses another major version than the one that it was built for.
const int* CudnnVersion() {
  static constexpr int kVersions[][3] = {{8, 9, 7}, {9, 3, 0}};
  return kVersions[pretend_gpu::GetSettings().cudnn - 8];
}

}  // namespace

PRETEND_GPU_API int nvmlInit_v2() { return 0; }
PRETEND_GPU_API int nvmlShutdown() { return 0; }
PRETEND_GPU_API const char* nvmlErrorString(int) { return kNoText; }
PRETEND_GPU_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(pretend_gpu::GetSettings().devices);
  return 0;
}
PRETEND_GPU_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (!pretend_gpu::IsDevice(static_cast<int>(index))) return kNotFound;
  *device = &devices[index];
  return 0;
}
PRETEND_GPU_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  const std::string wanted = id;
  for (int i = 0; pretend_gpu::IsDevice(i); i++) {
    // NVML writes the domain with eight digits, CUDA with four.
    const std::string ours = pretend_gpu::PciBusIdOf(i);
    if (wanted != ours && wanted != "0000" + ours) continue;
    *device = &devices[i];
    return 0;
  }
  return kNotFound;
}
PRETEND_GPU_API int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 4;
  return 0;
}
PRETEND_GPU_API int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 16;
  return 0;
}
PRETEND_GPU_API int nvmlDeviceGetNvLinkState(void*, unsigned, int* active) {
  *active = 0;
  return 0;
}
PRETEND_GPU_API int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNotSupported; }

PRETEND_GPU_API int cudnnGetProperty(int property, int* value) {
  if (property < 0 || property > 2) return kNotSupported;
  *value = CudnnVersion()[property];
  return 0;
}
PRETEND_GPU_API std::size_t cudnnGetVersion() {
  const int* const version = CudnnVersion();
  return version[0] * (version[0] < 9 ? 1000 : 10000) + version[1] * 100 + version[2];
}
PRETEND_GPU_API int cudnnCreate(void** handle) {
  *handle = &cudnn;
  return 0;
}
PRETEND_GPU_API int cudnnDestroy(void*) { return 0; }
PRETEND_GPU_API int cudnnSetStream(void*, void*) { return 0; }

// These return texts. A program that takes what another stub returns for a text would crash.
PRETEND_GPU_API const char* cublasGetStatusString(int) { return kNoText; }
PRETEND_GPU_API const char* cublasGetStatusName(int) { return kNoText; }
PRETEND_GPU_API const char* cublasLtGetStatusString(int) { return kNoText; }
PRETEND_GPU_API const char* cublasLtGetStatusName(int) { return kNoText; }
PRETEND_GPU_API const char* cudnnGetErrorString(int) { return kNoText; }
PRETEND_GPU_API const char* cusparseGetErrorString(int) { return kNoText; }
PRETEND_GPU_API const char* cusparseGetErrorName(int) { return kNoText; }
