// Memory and events of one process in another. The other process is this program again, told what to do by
// its argument; handles go through its standard input and output.
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

extern char** environ;

namespace pretend_gpu::testing {
namespace {

constexpr std::size_t kBytes = 1000;

template <class T>
void Send(int to, const T& value) {
  if (write(to, &value, sizeof(value)) != static_cast<ssize_t>(sizeof(value))) _exit(3);
}

// Returns false at the end of the other process.
template <class T>
bool Receive(int from, T* value) {
  return read(from, value, sizeof(*value)) == static_cast<ssize_t>(sizeof(*value));
}

// A process that runs Peer(name). It has our socket as standard input.
class OtherProcess {
 public:
  explicit OtherProcess(const char* name) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    socket_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    char self[] = "/proc/self/exe", what[64];
    std::snprintf(what, sizeof(what), "--peer=%s", name);
    char* arguments[] = {self, what, nullptr};
    if (posix_spawn(&process_, self, &actions, nullptr, arguments, environ) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  ~OtherProcess() {
    close(socket_);
    if (process_ != 0) Kill();
  }
  void Kill() {
    kill(process_, SIGKILL);
    Wait();
  }
  int Wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }
  int socket() const { return socket_; }

 private:
  int socket_;
  pid_t process_ = 0;
};

class IpcTest : public Gpu {};

TEST_F(IpcTest, AnImporterReadsAndWritesTheWholeAllocation) {
  const CUdeviceptr address = Allocate(kBytes);
  OK(cuMemsetD8_v2(address, 5, kBytes));
  OK(cuCtxSynchronize());
  OtherProcess other("memory");
  CUipcMemHandle handle;
  OK(cuIpcGetMemHandle(&handle, address + 10));  // within it: the importer gets its beginning all the same
  Send(other.socket(), handle);
  unsigned char first = 0;
  ASSERT_TRUE(Receive(other.socket(), &first));
  EXPECT_EQ(5, first);
  EXPECT_EQ(6, Read(address, kBytes)[kBytes - 1]);
  EXPECT_DEATH(cuMemFree_v2(address), "is still open in process [0-9]+; let it call cuIpcCloseMemHandle");
  Send(other.socket(), 'c');
  ASSERT_TRUE(Receive(other.socket(), &first));  // it has closed the handle
  OK(cuMemFree_v2(address));
  Send(other.socket(), handle);  // and opens it again, too late
  const int status = other.Wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST_F(IpcTest, WhatADeadImporterHadOpenCanBeFreed) {
  const CUdeviceptr address = Allocate(kBytes);
  OtherProcess other("memory");
  CUipcMemHandle handle;
  OK(cuIpcGetMemHandle(&handle, address));
  Send(other.socket(), handle);
  unsigned char first = 0;
  ASSERT_TRUE(Receive(other.socket(), &first));
  other.Kill();
  OK(cuMemFree_v2(address));
}

TEST_F(IpcTest, AHandleOfADeadProcessIsAnError) {
  OtherProcess other("exporter");
  CUipcMemHandle handle;
  CUipcEventHandle event_handle;
  ASSERT_TRUE(Receive(other.socket(), &handle));
  ASSERT_TRUE(Receive(other.socket(), &event_handle));
  other.Kill();
  CUdeviceptr address = 0;
  CUevent event = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&event, event_handle));
}

TEST_F(IpcTest, MisuseOfHandles) {
  const CUdeviceptr address = Allocate(kBytes);
  CUipcMemHandle handle;
  CUdeviceptr opened = 0;
  OK(cuIpcGetMemHandle(&handle, address));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&opened, handle, 0));
  EXPECT_DEATH(cuIpcOpenMemHandle_v2(&opened, CUipcMemHandle{}, 1), "these 64 bytes are no memory handle");
  EXPECT_DEATH(
      {
        CUdeviceptr own = 0;
        CUipcMemHandle of_own;
        cuIpcGetMemHandle(&of_own, address);
        cuIpcOpenMemHandle_v2(&own, of_own, 1);
      },
      "the handle is of this very process");
  EXPECT_DEATH(cuIpcCloseMemHandle(address), "is not open; close once what cuIpcOpenMemHandle returned");
  OK(cuMemFree_v2(address));
}

// The exporter's stream writes and records; the importer waits on the device, and answers by an event.
TEST_F(IpcTest, EventsOrderTheStreamsOfTwoProcesses) {
  for (const char* policy : {"prompt", "lazy", "random"}) {
    SCOPED_TRACE(policy);
    pretend_gpu_set_policy(policy);
    OtherProcess other("events");
    Send(other.socket(), static_cast<char>(policy[0]));
    const CUstream stream = MakeStream();
    const CUdeviceptr address = Allocate(1);
    const CUevent written = MakeEvent(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    OK(cuIpcGetMemHandle(&handle, address));
    OK(cuIpcGetEventHandle(&event_handle, written));
    Send(other.socket(), handle);
    Send(other.socket(), event_handle);
    ASSERT_TRUE(Receive(other.socket(), &event_handle));
    CUevent answered = nullptr;
    OK(cuIpcOpenEventHandle(&answered, event_handle));
    for (unsigned char round = 1; round <= 20; round++) {
      OK(cuMemsetD8Async(address, round, 1, stream));
      OK(cuEventRecord(written, stream));
      Send(other.socket(), round);  // the host says that it has recorded, not that the stream was there
      unsigned char seen = 0;
      ASSERT_TRUE(Receive(other.socket(), &seen));
      OK(cuStreamWaitEvent(stream, answered, 0));
      EXPECT_EQ(round + 100, Read(address, 1, stream)[0]);
    }
    Send(other.socket(), static_cast<unsigned char>(0));
    EXPECT_EQ(0, other.Wait());
    OK(cuEventDestroy_v2(answered));
    OK(cuEventDestroy_v2(written));
    OK(cuMemFree_v2(address));
    OK(cuStreamDestroy_v2(stream));
  }
}

// What the other process does. A failed check ends it with a code that its parent sees.
void Check(CUresult result) {
  if (result != CUDA_SUCCESS) _exit(4);
}

int Peer(const std::string& name) {
  constexpr int kParent = STDIN_FILENO;
  CUcontext context = nullptr;
  Check(cuInit(0));
  Check(cuDevicePrimaryCtxRetain(&context, 0));
  Check(cuCtxSetCurrent(context));
  CUipcMemHandle handle;
  CUdeviceptr address = 0;
  unsigned char byte = 0;
  if (name == "exporter") {
    CUevent event = nullptr;
    CUipcEventHandle event_handle;
    Check(cuMemAlloc_v2(&address, kBytes));
    Check(cuIpcGetMemHandle(&handle, address));
    Check(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    Check(cuIpcGetEventHandle(&event_handle, event));
    Send(kParent, handle);
    Send(kParent, event_handle);
    Receive(kParent, &byte);  // until the parent kills this process
  } else if (name == "memory") {
    while (Receive(kParent, &handle)) {
      Check(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
      Check(cuMemcpyDtoH_v2(&byte, address, 1));
      Check(cuMemsetD8_v2(address, 6, kBytes));
      Check(cuCtxSynchronize());
      Send(kParent, byte);
      if (!Receive(kParent, &byte)) return 0;
      Check(cuIpcCloseMemHandle(address));
      Send(kParent, byte);
    }
  } else if (name == "events") {
    char policy = 0;
    CUipcEventHandle event_handle;
    CUevent written = nullptr, answered = nullptr;
    CUstream stream = nullptr;
    if (!Receive(kParent, &policy) || !Receive(kParent, &handle) || !Receive(kParent, &event_handle))
      return 5;
    pretend_gpu_set_policy(policy == 'p' ? "prompt" : policy == 'l' ? "lazy" : "random");
    Check(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    Check(cuIpcOpenEventHandle(&written, event_handle));
    Check(cuEventCreate(&answered, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    Check(cuIpcGetEventHandle(&event_handle, answered));
    Send(kParent, event_handle);
    Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    Check(cuModuleLoadData(&module, "image"));
    Check(cuModuleGetFunction(&function, module, "add_100"));
    while (Receive(kParent, &byte) && byte != 0) {
      Check(cuStreamWaitEvent(stream, written, 0));
      void* arguments[] = {&address};
      Check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
      Check(cuEventRecord(answered, stream));
      Send(kParent, byte);
    }
    Check(cuStreamSynchronize(stream));
    Check(cuIpcCloseMemHandle(address));
  }
  return 0;
}

const Register add_100("add_100", EachThread(+[](unsigned char* value) { *value += 100; }));

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(1, "prompt", pretend_gpu::testing::kNever);
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.rfind("--peer=", 0) == 0) return pretend_gpu::testing::Peer(first.substr(7));
  return RUN_ALL_TESTS();
}
