// The driver API: streams and events.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/pretend_gpu/context.h"
#include "tests/pretend_gpu/event.h"
#include "tests/pretend_gpu/sticky_error.h"
#include "tests/pretend_gpu/waits.h"

using pretend_gpu::End;
using pretend_gpu::Enqueue;
using pretend_gpu::Event;
using pretend_gpu::Events;
using pretend_gpu::StreamHandle;
using pretend_gpu::StreamOf;
using pretend_gpu::Streams;
using pretend_gpu::Task;

std::string pretend_gpu::RoleOfCaller(const void* code) {
  Dl_info info = {};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "unknown";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

CUstream pretend_gpu::MakeStream(unsigned flags, int priority, const std::string& role) {
  const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  auto stream = CurrentContext()->StartStream(blocking, priority, role);
  Log("%s", stream->Describe().c_str());
  const StreamHandle handle{CurrentHandle(), std::move(stream)};
  return static_cast<CUstream>(Streams().Add(std::make_shared<StreamHandle>(handle)));
}

void pretend_gpu_set_stream_role(void* stream, const char* role) {
  const pretend_gpu::Call call(__func__);
  StreamOf(stream).stream->SetRole(role);
}

void pretend_gpu_set_policy(const char* policy) {
  const pretend_gpu::Call call(__func__);
  pretend_gpu::SetPolicy(policy);
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  PRETEND_GPU_ENTER_CONTEXT;
  *stream = pretend_gpu::MakeStream(flags, 0, pretend_gpu::RoleOfCaller(__builtin_return_address(0)));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  PRETEND_GPU_ENTER_CONTEXT;
  *stream = pretend_gpu::MakeStream(flags, priority, pretend_gpu::RoleOfCaller(__builtin_return_address(0)));
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto removed = Streams().Remove(stream);
  pretend_gpu::Contexts().Get(removed->context)->EndStream(removed->stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  if (const auto tail = StreamOf(stream).stream->Tail()) tail->Wait();
  return pretend_gpu::StickyError();
}

CUresult cuStreamQuery(CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto tail = StreamOf(stream).stream->Tail();
  return tail == nullptr || tail->Reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  PRETEND_GPU_ENTER_CONTEXT;
  *priority = StreamOf(stream).stream->priority();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  PRETEND_GPU_ENTER_CONTEXT;
  *flags = StreamOf(stream).stream->waits_for_null_stream() ? 0 : unsigned{CU_STREAM_NON_BLOCKING};
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  PRETEND_GPU_ENTER_CONTEXT;
  *context = static_cast<CUcontext>(StreamOf(stream).context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  PRETEND_GPU_ENTER_CONTEXT;
  *id = StreamOf(stream).stream->id();
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream, int* status) {
  *status = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  const StreamHandle waiting = StreamOf(stream);
  const auto mark = Events().Get(event)->Last();
  pretend_gpu::Log("%s waits for event %zu%s", waiting.stream->Describe().c_str(), Events().NumberOf(event),
                   mark == nullptr ? ", which was never recorded" : "");
  if (mark == nullptr || pretend_gpu::LeavesOutWait()) return CUDA_SUCCESS;
  Task task;
  task.run = [mark] { mark->Wait(); };
  Enqueue(waiting, std::move(task));
  return CUDA_SUCCESS;
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  Task task;
  task.may_wait_for_host = true;
  task.run = [stream, callback, data] { callback(stream, CUDA_SUCCESS, data); };
  Enqueue(StreamOf(stream), std::move(task));
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  PRETEND_GPU_ENTER_CONTEXT;
  Task task;
  task.may_wait_for_host = true;
  task.run = [function, data] { function(data); };
  Enqueue(StreamOf(stream), std::move(task));
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  PRETEND_GPU_ENTER_CONTEXT;
  pretend_gpu::CurrentContext();
  const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  auto made = std::make_shared<Event>(pretend_gpu::CurrentHandle(), timed);
  *event = static_cast<CUevent>(Events().Add(std::move(made)));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  PRETEND_GPU_ENTER_CONTEXT;
  Events().Remove(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  PRETEND_GPU_ENTER_CONTEXT;
  const StreamHandle recorded = StreamOf(stream);
  Events().Get(event)->Record(recorded);
  pretend_gpu::Log("event %zu on %s", Events().NumberOf(event), recorded.stream->Describe().c_str());
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  PRETEND_GPU_ENTER_CONTEXT;
  return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto mark = Events().Get(event)->Last();
  return mark == nullptr || mark->Reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
  PRETEND_GPU_ENTER_CONTEXT;
  const auto mark = Events().Get(event)->Last();
  if (mark != nullptr && !pretend_gpu::LeavesOutWait()) mark->Wait();
  return pretend_gpu::StickyError();
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  PRETEND_GPU_ENTER_CONTEXT;
  const bool reached = Events().Get(begin)->Elapsed(*Events().Get(end), milliseconds);
  return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
