// A pretend accelerator: a device of TensorFlow's, of type TEST_ACCELERATOR, whose memory is the host's.
//
// A plugin of TensorFlow's C API for devices. It has no kernels of its own, so it runs those that TensorFlow
// registers for every device (Identity, variables, control flow) and nothing else: as a GPU of which an op
// library knows nothing. Its streams do everything at once. tests/python/test_accelerator.py compiles it.

#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

namespace {

int some_handle;

// Streams, events and timers have no state; a handle must not be null.
template <typename Handle>
void create(const SP_Device*, Handle* handle, TF_Status* status) {
  *handle = reinterpret_cast<Handle>(&some_handle);
  TF_SetStatus(status, TF_OK, "");
}

template <typename Handle>
void destroy(const SP_Device*, Handle) {}

void allocate(const SP_Device*, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = aligned_alloc(64, (size + 63) / 64 * 64);
  memory->size = size;
}

void deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  free(memory->opaque);
  memory->opaque = nullptr;
  memory->size = 0;
}

void* allocate_host(const SP_Device*, uint64_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }
void deallocate_host(const SP_Device*, void* memory) { free(memory); }
TF_Bool get_allocator_stats(const SP_Device*, SP_AllocatorStats*) { return false; }

TF_Bool memory_usage(const SP_Device*, int64_t* free_bytes, int64_t* total_bytes) {
  *free_bytes = *total_bytes = int64_t{1} << 30;
  return true;
}

void copy(void* to, const void* from, uint64_t size, TF_Status* status) {
  memcpy(to, from, size);
  TF_SetStatus(status, TF_OK, "");
}

void to_host(const SP_Device*, SP_Stream, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
             TF_Status* status) {
  copy(to, from->opaque, size, status);
}
void to_device(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
               TF_Status* status) {
  copy(to->opaque, from, size, status);
}
void within_device(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                   uint64_t size, TF_Status* status) {
  copy(to->opaque, from->opaque, size, status);
}
void sync_to_host(const SP_Device*, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
                  TF_Status* status) {
  copy(to, from->opaque, size, status);
}
void sync_to_device(const SP_Device*, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
                    TF_Status* status) {
  copy(to->opaque, from, size, status);
}
void sync_within_device(const SP_Device*, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                        uint64_t size, TF_Status* status) {
  copy(to->opaque, from->opaque, size, status);
}
void zero(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint64_t size, TF_Status* status) {
  memset(memory->opaque, 0, size);
  TF_SetStatus(status, TF_OK, "");
}
void set8(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint8_t pattern, uint64_t size,
          TF_Status* status) {
  memset(memory->opaque, pattern, size);
  TF_SetStatus(status, TF_OK, "");
}
void set32(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, uint32_t pattern, uint64_t size,
           TF_Status* status) {
  for (uint64_t i = 0; i + 4 <= size; i += 4) {
    memcpy(static_cast<char*>(memory->opaque) + i, &pattern, 4);
  }
  TF_SetStatus(status, TF_OK, "");
}

void on_stream(const SP_Device*, SP_Stream, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
void on_streams(const SP_Device*, SP_Stream, SP_Stream, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
}
void on_event(const SP_Device*, SP_Event, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
void on_stream_event(const SP_Device*, SP_Stream, SP_Event, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
}
void on_timer(const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
void on_device(const SP_Device*, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
SE_EventStatus event_status(const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; }
uint64_t nanoseconds(SP_Timer) { return 0; }

TF_Bool host_callback(const SP_Device*, SP_Stream, SE_StatusCallbackFn function, void* argument) {
  TF_Status* status = TF_NewStatus();
  function(argument, status);
  const bool ok = TF_GetCode(status) == TF_OK;
  TF_DeleteStatus(status);
  return ok;
}

void create_stream_executor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
  SP_StreamExecutor* executor = params->stream_executor;
  executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  executor->allocate = allocate;
  executor->deallocate = deallocate;
  executor->host_memory_allocate = allocate_host;
  executor->host_memory_deallocate = deallocate_host;
  executor->get_allocator_stats = get_allocator_stats;
  executor->device_memory_usage = memory_usage;
  executor->create_stream = create<SP_Stream>;
  executor->destroy_stream = destroy<SP_Stream>;
  executor->create_stream_dependency = on_streams;
  executor->get_stream_status = on_stream;
  executor->create_event = create<SP_Event>;
  executor->destroy_event = destroy<SP_Event>;
  executor->get_event_status = event_status;
  executor->record_event = on_stream_event;
  executor->wait_for_event = on_stream_event;
  executor->create_timer = create<SP_Timer>;
  executor->destroy_timer = destroy<SP_Timer>;
  executor->start_timer = on_timer;
  executor->stop_timer = on_timer;
  executor->memcpy_dtoh = to_host;
  executor->memcpy_htod = to_device;
  executor->memcpy_dtod = within_device;
  executor->sync_memcpy_dtoh = sync_to_host;
  executor->sync_memcpy_htod = sync_to_device;
  executor->sync_memcpy_dtod = sync_within_device;
  executor->block_host_for_event = on_event;
  executor->block_host_until_done = on_stream;
  executor->synchronize_all_activity = on_device;
  executor->mem_zero = zero;
  executor->memset = set8;
  executor->memset32 = set32;
  executor->host_callback = host_callback;
  TF_SetStatus(status, TF_OK, "");
}
void destroy_stream_executor(const SP_Platform*, SP_StreamExecutor*) {}

void get_device_count(const SP_Platform*, int* count, TF_Status* status) {
  *count = 1;
  TF_SetStatus(status, TF_OK, "");
}

void create_device(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->device_handle = &some_handle;
  params->device->hardware_name = "a pretend accelerator";
  params->device->device_vendor = "nobody";
  params->device->pci_bus_id = "0000:00:00.0";
  TF_SetStatus(status, TF_OK, "");
}
void destroy_device(const SP_Platform*, SP_Device*) {}

void create_device_functions(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status* status) {
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  TF_SetStatus(status, TF_OK, "");
}
void destroy_device_functions(const SP_Platform*, SP_DeviceFns*) {}

void create_timer_functions(const SP_Platform*, SP_TimerFns* functions, TF_Status* status) {
  functions->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  functions->nanoseconds = nanoseconds;
  TF_SetStatus(status, TF_OK, "");
}
void destroy_timer_functions(const SP_Platform*, SP_TimerFns*) {}

void destroy_platform(SP_Platform*) {}
void destroy_platform_functions(SP_PlatformFns*) {}

}  // namespace

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "PRETEND";
  params->platform->type = "TEST_ACCELERATOR";
  params->platform->supports_unified_memory = false;
  params->platform->use_bfc_allocator = true;
  params->platform->force_memory_growth = true;
  params->platform_fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  params->platform_fns->get_device_count = get_device_count;
  params->platform_fns->create_device = create_device;
  params->platform_fns->destroy_device = destroy_device;
  params->platform_fns->create_device_fns = create_device_functions;
  params->platform_fns->destroy_device_fns = destroy_device_functions;
  params->platform_fns->create_stream_executor = create_stream_executor;
  params->platform_fns->destroy_stream_executor = destroy_stream_executor;
  params->platform_fns->create_timer_fns = create_timer_functions;
  params->platform_fns->destroy_timer_fns = destroy_timer_functions;
  params->destroy_platform = destroy_platform;
  params->destroy_platform_fns = destroy_platform_functions;
  TF_SetStatus(status, TF_OK, "");
}
