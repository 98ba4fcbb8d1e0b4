#include "tests/pretend_gpu/sticky_error.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/device.h"
#include "tests/pretend_gpu/pretend_gpu.h"

namespace pretend_gpu {
namespace {

// By device: how many calls there are still, plus 1; 0: no end.
std::atomic<int> calls_left[16];

std::atomic<int>* OfCurrent() {
  return CurrentHandle() == nullptr ? nullptr : &calls_left[CurrentContext()->device()];
}

}  // namespace

bool IsBroken(int device) { return calls_left[device] == 1; }

bool IsAnyBroken() {
  return std::any_of(std::begin(calls_left), std::end(calls_left),
                     [](const auto& left) { return left == 1; });
}

CUresult StickyError() {
  const std::atomic<int>* const left = OfCurrent();
  return left != nullptr && *left == 1 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

CUresult CountCall() {
  std::atomic<int>* const left = OfCurrent();
  if (left == nullptr) return CUDA_SUCCESS;
  CurrentContext()->AwaitLock();
  int before = *left;
  while (before > 1 && !left->compare_exchange_weak(before, before - 1)) continue;
  if (before != 1) return CUDA_SUCCESS;
  Log("device %d is broken", CurrentContext()->device());
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace pretend_gpu

void pretend_gpu_break_device(int device, int calls) {
  const pretend_gpu::Call call(__func__);
  if (!pretend_gpu::IsDevice(device)) pretend_gpu::End("there is no device %d to be broken", device);
  pretend_gpu::calls_left[device] = calls < 0 ? 0 : calls + 1;
}
