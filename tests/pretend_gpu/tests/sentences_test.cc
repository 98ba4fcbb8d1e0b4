// Each misuse ends the process with one sentence that names the call, the object and the remedy.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

const Register touch("touch", EachThread(+[](char* at, int offset) { at[offset] = 1; }));
const Register untranslated("untranslated", [](const Launch&, void** arguments) {
  char* const at = *static_cast<char**>(arguments[0]);
  return [at] { *at = 1; };
});

class Sentences : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    pretend_gpu_set_policy("lazy");
    stream_ = MakeStream();
    address_ = Allocate(100);
  }

  void LaunchTouch(const char* kernel, CUdeviceptr at, int offset, CUstream stream) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    OK(cuModuleLoadData(&module, "image"));
    OK(cuModuleGetFunction(&function, module, kernel));
    void* arguments[] = {&at, &offset};
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
  }

  char host_[200] = {};
  CUstream stream_ = nullptr;
  CUdeviceptr address_ = 0;
};

TEST_F(Sentences, UseOfADestroyedStream) {
  OK(cuStreamDestroy_v2(stream_));
  EXPECT_DEATH(cuMemsetD8Async(address_, 0, 1, stream_),
               "cuMemsetD8Async: stream [0-9]+ was destroyed before, by cuStreamDestroy_v2; destroy it once");
  EXPECT_DEATH(cuStreamDestroy_v2(stream_), "cuStreamDestroy_v2: stream [0-9]+ was destroyed before");
  EXPECT_DEATH(cudaStreamSynchronize(stream_), "cudaStreamSynchronize: stream [0-9]+ was destroyed");
  EXPECT_DEATH(cuStreamSynchronize(reinterpret_cast<CUstream>(this)), "is no stream; pass a handle");
}

TEST_F(Sentences, UseOfADestroyedEvent) {
  const CUevent event = MakeEvent();
  OK(cuEventDestroy_v2(event));
  EXPECT_DEATH(cuEventQuery(event), "cuEventQuery: event [0-9]+ was destroyed before, by cuEventDestroy_v2");
}

TEST_F(Sentences, UseOfADestroyedContextOrModule) {
  CUcontext context = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuCtxDestroy_v2(context));
  EXPECT_DEATH(cuCtxPushCurrent_v2(context), "context [0-9]+ was destroyed before, by cuCtxDestroy_v2");
  EXPECT_DEATH(cuCtxDestroy_v2(context_), "primary context of device 0 is not destroyed but released");
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuModuleLoadData(&module, "image"));
  OK(cuModuleGetFunction(&function, module, "touch"));
  OK(cuModuleUnload(module));
  EXPECT_DEATH(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr),
               "function [0-9]+ was destroyed before, by cuModuleUnload");
}

TEST_F(Sentences, FreeingTwiceOrWhatWasNeverAllocated) {
  EXPECT_DEATH(cuMemFree_v2(address_ + 1),
               "is byte 1 of allocation [0-9]+ .* free once what cuMemAlloc returned");
  EXPECT_DEATH(cuMemFree_v2(0x1000), "cuMemFree_v2: 0x1000 is no device memory");
  OK(cuMemFree_v2(address_));
  EXPECT_DEATH(cuMemFree_v2(address_), "is in freed memory, formerly allocation [0-9]+ \\(100 bytes");
  EXPECT_DEATH(cudaFree(reinterpret_cast<void*>(address_)), "cudaFree: 0x.* is in freed memory");
}

TEST_F(Sentences, FreeingPinnedMemoryTwice) {
  void* pinned = nullptr;
  OK(cuMemHostAlloc(&pinned, 8, 0));
  OK(cuMemcpyHtoDAsync_v2(address_, pinned, 8, stream_));
  EXPECT_DEATH(cuMemFreeHost(pinned),
               "still used by cuMemcpyHtoDAsync_v2 on stream [0-9]+ .*wait for that stream");
  OK(cuStreamSynchronize(stream_));
  OK(cuMemFreeHost(pinned));
  EXPECT_DEATH(cuMemFreeHost(pinned), "is the beginning of no host memory that was allocated");
  EXPECT_DEATH(cuMemHostUnregister(host_), "is the beginning of no host memory that was registered");
}

TEST_F(Sentences, MemoryFreedWhileATaskUsesIt) {
  OK(cuMemsetD8Async(address_, 1, 100, stream_));
  EXPECT_DEATH(
      cuMemFree_v2(address_),
      "cuMemFree_v2: allocation [0-9]+ .*still used by cuMemsetD8Async on stream [0-9]+ \\(role test, device "
      "0\\), which is not done; wait for that stream");
  OK(cuStreamSynchronize(stream_));
  LaunchTouch("touch", address_, 0, stream_);
  EXPECT_DEATH(cuMemFree_v2(address_), "still used by kernel touch on stream");
  OK(cuStreamSynchronize(stream_));
  OK(cuMemFree_v2(address_));
}

TEST_F(Sentences, CopiesBeyondAnAllocation) {
  EXPECT_DEATH(cuMemcpyHtoD_v2(address_ + 50, host_, 51),
               "the destination, 51 bytes from byte 50 on, goes beyond allocation [0-9]+ \\(100 bytes");
  EXPECT_DEATH(cuMemcpyDtoH_v2(host_, address_, 101), "the source, 101 bytes from byte 0 on, goes beyond");
  EXPECT_DEATH(cuMemsetD32Async(address_, 0, 26, stream_), "goes beyond allocation");
  EXPECT_DEATH(cuMemsetD32Async(address_ + 1, 0, 1, stream_), "is not a multiple of the 4 bytes");
  OK(cuMemFree_v2(address_));
  EXPECT_DEATH(cuMemcpyHtoD_v2(address_, host_, 1), "is in freed memory.*keep memory until its last use");
}

TEST_F(Sentences, CopiesInTheWrongDirection) {
  EXPECT_DEATH(cuMemcpyHtoD_v2(address_, reinterpret_cast<void*>(address_), 1),
               "this call takes host memory there");
  EXPECT_DEATH(cuMemcpyDtoD_v2(address_, reinterpret_cast<CUdeviceptr>(host_), 1),
               "source .* is no device memory");
  EXPECT_DEATH(cudaMemcpy(host_, reinterpret_cast<void*>(address_), 1, cudaMemcpyHostToDevice),
               "cudaMemcpy: the destination .* is no device memory");
}

TEST_F(Sentences, AKernelThatWritesBeyondAnAllocation) {
  EXPECT_DEATH(
      {
        LaunchTouch("touch", address_, 100, stream_);
        cuCtxSynchronize();
      },
      "cuCtxSynchronize: a kernel wrote byte 100 of allocation [0-9]+ .*beyond its end; check the kernel's "
      "bounds");
}

TEST_F(Sentences, TheHostTouchesDeviceMemory) {
  volatile char* const at = reinterpret_cast<char*>(address_ + 5);
  EXPECT_DEATH(*at = 1, "the host touched address 0x.* which is byte 5 of allocation [0-9]+ .*copy the data");
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(stream_) = 1, "is stream [0-9]+, a handle");
  OK(cuMemFree_v2(address_));
  EXPECT_DEATH(*at = 1, "is in freed memory, formerly allocation");
  EXPECT_DEATH(
      {
        LaunchTouch("untranslated", address_ = Allocate(1), 0, stream_);
        cuStreamSynchronize(stream_);
      },
      "the twin of a kernel touched address .*that was not translated");
}

TEST_F(Sentences, AFaultElsewhereIsNotOurs) {
#if defined(__SANITIZE_ADDRESS__)  // it handled faults before
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(16) = 1, "^AddressSanitizer:DEADLYSIGNAL");
#else
  EXPECT_EXIT(*reinterpret_cast<volatile char*>(16) = 1, ::testing::KilledBySignal(SIGSEGV), "^$");
#endif
}

TEST_F(Sentences, NoContextOrTheWrongOne) {
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  EXPECT_DEATH(cuEventRecord(MakeEvent(), stream_),
               "the event belongs to the primary context of device 1, and stream [0-9]+ .* device 0; record");
  EXPECT_DEATH(LaunchTouch("touch", address_, 0, stream_),
               "launched on stream .*make the stream's context current");
  OK(cuCtxSetCurrent(context_));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuModuleLoadData(&module, "image"));
  OK(cuModuleGetFunction(&function, module, "touch"));
  OK(cuCtxSetCurrent(other));
  EXPECT_DEATH(
      cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
      "kernel touch was loaded in the primary context of device 0, and the primary context of device 1");
  EXPECT_DEATH(std::thread([] {
                 CUdeviceptr address = 0;
                 cuMemAlloc_v2(&address, 1);
               }).join(),
               "cuMemAlloc_v2: no context is current on this thread; call cuCtxSetCurrent");
  OK(cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_DEATH(cuDevicePrimaryCtxRelease_v2(1), "device 1 is released more often than it was retained");
}

TEST_F(Sentences, KernelsAndFunctionsThatAreNotThere) {
  EXPECT_DEATH(LaunchTouch("_Z3addPfi", address_, 0, stream_),
               "cuLaunchKernel: kernel add\\(float\\*, int\\) \\[_Z3addPfi\\] has no twin; register one");
  EXPECT_DEATH(LaunchTouch("touch", reinterpret_cast<CUdeviceptr>(host_), 0, stream_),
               "pageable host memory");
  void* function = nullptr;
  OK(cuGetProcAddress_v2("cuGraphLaunch", &function, 12000, 0, nullptr));
  EXPECT_DEATH(reinterpret_cast<CUresult (*)(void*, void*)>(function)(nullptr, nullptr),
               "cuGraphLaunch: the stand-in does not have this function");
  EXPECT_DEATH(cudaLaunchKernel(host_, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr),
               "never registered as a kernel");
}

TEST_F(Sentences, AKernelNeedsPeerAccess) {
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  const CUstream stream = MakeStream();
  EXPECT_DEATH(LaunchTouch("touch", address_, 0, stream),
               "device 0\\); call cuCtxEnablePeerAccess for that device");
  OK(cuCtxEnablePeerAccess(context_, 0));
  LaunchTouch("touch", address_, 0, stream);
  OK(cuStreamSynchronize(stream));
  OK(cuCtxDisablePeerAccess(context_));
  OK(cuDevicePrimaryCtxRelease_v2(1));
}

TEST_F(Sentences, ACallFromAHostFunction) {
  EXPECT_DEATH(
      {
        cuLaunchHostFunc(
            stream_, [](void* stream) { cuStreamQuery(static_cast<CUstream>(stream)); }, stream_);
        cuStreamSynchronize(stream_);
      },
      "cuStreamQuery: this is a host function or callback of a stream, where CUDA forbids its calls");
}

TEST_F(Sentences, ACallInAForkedChild) {
  // The death test's process uses the GPU, and its child does.
  EXPECT_EXIT(
      {
        if (fork() == 0) cuStreamQuery(stream_);
        int status = 0;
        wait(&status);
        _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "cuStreamQuery: the parent process had used the GPU before it forked");
}

TEST_F(Sentences, EventsWithoutTimes) {
  const CUevent timed = MakeEvent(0), untimed = MakeEvent();
  float milliseconds = 0;
  EXPECT_DEATH(cuEventElapsedTime(&milliseconds, timed, untimed), "made without times");
  EXPECT_DEATH(cuEventElapsedTime(&milliseconds, timed, timed), "never recorded");
}

TEST_F(Sentences, ABadPolicy) {
  EXPECT_DEATH(pretend_gpu_set_policy("comm=late"),
               "the policy 'comm=late' has the mood 'late'; a mood is prompt");
}

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(2, "prompt", pretend_gpu::testing::kNever);
  return RUN_ALL_TESTS();
}
