// The part of the C API (smddp.h) that moves data: requests, their buffers, and memory for these.
//
// Place in the stack: beside c_api.cc. It makes the engine's requests of those of a C program, whose numbers
// and sizes may be anything.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/types.h"
#include "kernels/common/utf8.h"
#include "kernels/cuda/device.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/request.h"
#include "kernels/memory/span_allocator.h"
#include "kernels/process/arenas.h"
#include "kernels/process/c_result.h"
#include "kernels/process/global_engine.h"
#include "kernels/process/smddp.h"

namespace tf_smddp {
namespace {

// The C API has the engine's numbers.
#define TF_SMDDP_SAME(number, enumerator) \
  static_assert(static_cast<int>(number) == static_cast<int>(enumerator))
TF_SMDDP_SAME(SMDDP_ALLREDUCE, CollectiveKind::kAllreduce);
TF_SMDDP_SAME(SMDDP_BROADCAST, CollectiveKind::kBroadcast);
TF_SMDDP_SAME(SMDDP_BARRIER, CollectiveKind::kBarrier);
TF_SMDDP_SAME(SMDDP_ALLGATHER, CollectiveKind::kAllgather);
TF_SMDDP_SAME(SMDDP_REDUCE_SCATTER, CollectiveKind::kReducescatter);
TF_SMDDP_SAME(SMDDP_ALLTOALL, CollectiveKind::kAlltoall);
TF_SMDDP_SAME(SMDDP_FLOAT16, DType::kFloat16);
TF_SMDDP_SAME(SMDDP_BFLOAT16, DType::kBFloat16);
TF_SMDDP_SAME(SMDDP_FLOAT32, DType::kFloat32);
TF_SMDDP_SAME(SMDDP_FLOAT64, DType::kFloat64);
TF_SMDDP_SAME(SMDDP_INT32, DType::kInt32);
TF_SMDDP_SAME(SMDDP_INT64, DType::kInt64);
TF_SMDDP_SAME(SMDDP_UINT8, DType::kUInt8);
TF_SMDDP_SAME(SMDDP_BOOL, DType::kBool);
TF_SMDDP_SAME(SMDDP_INT8, DType::kInt8);
TF_SMDDP_SAME(SMDDP_INT16, DType::kInt16);
TF_SMDDP_SAME(SMDDP_UINT16, DType::kUInt16);
TF_SMDDP_SAME(SMDDP_UINT32, DType::kUInt32);
TF_SMDDP_SAME(SMDDP_UINT64, DType::kUInt64);
TF_SMDDP_SAME(SMDDP_COMPLEX64, DType::kComplex64);
TF_SMDDP_SAME(SMDDP_COMPLEX128, DType::kComplex128);
TF_SMDDP_SAME(SMDDP_SUM, ReduceOp::kSum);
TF_SMDDP_SAME(SMDDP_AVERAGE, ReduceOp::kAverage);
TF_SMDDP_SAME(SMDDP_MIN, ReduceOp::kMin);
TF_SMDDP_SAME(SMDDP_MAX, ReduceOp::kMax);
TF_SMDDP_SAME(SMDDP_PRODUCT, ReduceOp::kProduct);
TF_SMDDP_SAME(SMDDP_UNCOMPRESSED, Compression::kNone);
TF_SMDDP_SAME(SMDDP_AS_FLOAT16, Compression::kFloat16);
TF_SMDDP_SAME(SMDDP_AS_BFLOAT16, Compression::kBFloat16);
#undef TF_SMDDP_SAME
// A type that is added belongs into smddp.h, too.
static_assert(SMDDP_COMPLEX128 + 1 == kNumDTypes && SMDDP_PRODUCT + 1 == kNumReduceOps);

// The request's size in the first version of smddp.h, in which `name` was the last field.
constexpr std::size_t kFirstRequestBytes = offsetof(smddp_request, name) + sizeof(smddp_request::name);

constexpr double kLongestTimeout = 1e9;  // seconds

// The tensors of a request in a GPU's memory.
struct GpuTensor {
  cuda::Device* device = nullptr;
  cuda::Order input, output;  // one of them if both are on one stream: `output`
};

// A request of a C program as the engine takes it.
struct Converted {
  Request request;
  std::shared_ptr<GpuTensor> gpu;  // nullptr on the CPU
};

Status CheckNumber(const char* field, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return {};
  return InvalidArgument("the request's " + std::string(field) + " is " + std::to_string(value) +
                         "; it is 0 to " + std::to_string(most) + ", see smddp.h");
}

// Sets *bytes to those of `rows` rows.
bool BytesOf(std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t* bytes) {
  return !__builtin_mul_overflow(rows, row_bytes, bytes) && *bytes <= ~std::uint64_t{0} / 2;
}

Status CheckRoom(const char* which, std::uint64_t needed, std::uint64_t room) {
  if (needed <= room) return {};
  return InvalidArgument("the request's " + std::string(which) + " takes " + std::to_string(needed) +
                         " bytes, and there is room for " + std::to_string(room) + " in its buffer");
}

// Reads a request of this version of smddp.h or of an earlier one.
Status ReadRequest(const smddp_request* from, smddp_request* request) {
  if (from->struct_size < kFirstRequestBytes || from->struct_size > sizeof *request) {
    return InvalidArgument(
        "the request's struct_size is " + std::to_string(from->struct_size) + ", and this library knows " +
        std::to_string(kFirstRequestBytes) + " to " + std::to_string(sizeof *request) +
        " bytes. Begin with smddp_request_init(), and use a library that is not older than "
        "the header");
  }
  smddp_request_init(request, sizeof *request);
  std::memcpy(request, from, from->struct_size);
  Status status;
  const auto check = [&status](const char* field, std::int64_t value, std::int64_t most) {
    if (status.ok()) status = CheckNumber(field, value, most);
  };
  check("collective", request->collective, SMDDP_ALLTOALL);
  check("dtype", request->dtype, kNumDTypes - 1);
  check("op", request->op, kNumReduceOps - 1);
  check("compression", request->compression, SMDDP_AS_BFLOAT16);
  check("num_dims", request->num_dims, INT32_MAX);
  check("num_splits", request->num_splits, INT32_MAX);
  check("input.memory", request->input.memory, SMDDP_CUDA);
  check("output.memory", request->output.memory, SMDDP_CUDA);
  if (!status.ok()) return status;
  if ((request->shape == nullptr && request->num_dims > 0) ||
      (request->splits == nullptr && request->num_splits > 0)) {
    return InvalidArgument("the request's num_dims or num_splits is not 0, and its shape or splits is NULL");
  }
  for (int i = 0; i < request->num_dims; ++i) check("shape", request->shape[i], INT64_MAX);
  return status;
}

// Where the request's output comes from when all ranks have arrived.
AllocateOutput AllocateOf(const smddp_request& from, std::uint64_t row_bytes) {
  return [from, row_bytes](const std::vector<std::int64_t>& rows, void** output) -> Status {
    std::uint64_t all = 0, bytes = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      all += static_cast<std::uint64_t>(rows[i]);
      if (from.rows != nullptr) from.rows[i] = rows[i];
    }
    if (!BytesOf(all, row_bytes, &bytes)) return InvalidArgument("the output has too many bytes");
    *output = from.output.data;
    if (from.allocate == nullptr) return CheckRoom("output", bytes, from.output.bytes);
    *output = from.allocate(from.allocate_context, rows.data(), static_cast<int>(rows.size()));
    if (*output != nullptr || bytes == 0) return {};
    return Internal("the program could not allocate the " + std::to_string(bytes) + " bytes of the output");
  };
}

// Sets the device and the orders of `gpu`, and the request's buffers to what they are there.
Status PutOnGpu(const smddp_request& from, GpuTensor* gpu, Request* request) {
  gpu->output.compute = static_cast<cuda::Stream>(from.output.stream);
  gpu->input.compute = static_cast<cuda::Stream>(from.input.stream);
  const bool one_stream = from.input.stream == from.output.stream;
  cuda::Device* other = nullptr;
  Status status = cuda::Device::Of(gpu->output.compute, &gpu->device);
  if (status.ok()) status = cuda::Device::Of(gpu->input.compute, &other);
  if (status.ok() && other != gpu->device) {
    status = InvalidArgument("the request's input is on a stream of " + other->name() +
                             ", and its output on one of " + gpu->device->name());
  }
  if (status.ok()) status = gpu->device->Mark(&gpu->output);
  if (status.ok() && !one_stream) status = gpu->device->Mark(&gpu->input);
  request->input = {request->input.data, gpu->device, one_stream ? &gpu->output : &gpu->input};
  request->output = {request->output.data, gpu->device, &gpu->output};
  return status;
}

Status Convert(const smddp_request* given, Converted* converted) {
  smddp_request from;
  Status status = ReadRequest(given, &from);
  if (!status.ok()) return status;
  Request& request = converted->request;
  request.communicator = from.communicator;
  if (!(from.timeout >= 0 && from.timeout <= kLongestTimeout)) {
    return InvalidArgument("the request's timeout is " + std::to_string(from.timeout) +
                           " seconds; it is 0 (SMDDP_STALL_TIMEOUT) to 1e9");
  }
  request.timeout =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(from.timeout));
  Operation& operation = request.operation;
  operation.kind = static_cast<CollectiveKind>(from.collective);
  operation.dtype = static_cast<DType>(from.dtype);
  if (IsReduction(operation.kind)) {
    operation.op = static_cast<ReduceOp>(from.op);
    operation.prescale = from.prescale;
    operation.postscale = from.postscale;
    operation.compression = static_cast<Compression>(from.compression);
  }
  request.label = ValidUtf8(from.label == nullptr ? "" : from.label);
  if (from.name != nullptr) {
    request.meaning.name = HashOfName(from.name);
    if (from.label == nullptr) request.label = ValidUtf8(from.name);
  }
  if (from.group_size > 0) {
    request.pairing.kind = Pairing::kGroup;
    request.pairing.ticket = from.ticket;
    request.pairing.param_index = from.group_index;
    request.pairing.num_params = from.group_size;
  }
  if (operation.kind == CollectiveKind::kBarrier) {
    operation.dtype = DType::kUInt8;
    request.shape = {0};
    return {};
  }

  request.shape.assign(from.shape, from.shape + from.num_dims);
  std::uint64_t row_bytes = DTypeBytes(operation.dtype);
  for (std::size_t i = 1; i < request.shape.size(); ++i) {
    if (!BytesOf(static_cast<std::uint64_t>(request.shape[i]), row_bytes, &row_bytes)) {
      return InvalidArgument("a row of the request's input has too many bytes");
    }
  }
  std::uint64_t bytes = row_bytes;
  if (!request.shape.empty() && !BytesOf(static_cast<std::uint64_t>(request.shape[0]), row_bytes, &bytes)) {
    return InvalidArgument("the request's input has too many bytes");
  }
  request.input = from.input.data;
  const bool has_root = operation.kind == CollectiveKind::kBroadcast;
  if (has_root || operation.kind == CollectiveKind::kAllreduce) {
    status = CheckRoom("output", bytes, from.output.bytes);
    if (from.input.data == nullptr) from.input = from.output;
    request.input = from.input.data;
    request.output = from.output.data;
    if (has_root) operation.root = RankId(from.root);
  } else {
    request.allocate = AllocateOf(from, row_bytes);
    request.splits.assign(from.splits, from.splits + from.num_splits);
  }
  if (status.ok()) status = CheckRoom("input", bytes, from.input.bytes);
  if (!status.ok() || (from.input.memory == SMDDP_HOST && from.output.memory == SMDDP_HOST)) return status;
  if (from.input.memory != from.output.memory) {
    return InvalidArgument("the request's input and output are in memory of different kinds");
  }
  converted->gpu = std::make_shared<GpuTensor>();
  return PutOnGpu(from, converted->gpu.get(), &request);
}

// Calls `done` with the request's end: on a GPU, when nothing of it uses the buffers any more.
DoneCallback WhenOver(std::shared_ptr<GpuTensor> gpu, DoneCallback done) {
  if (gpu == nullptr) return done;
  return [gpu = std::move(gpu), done = std::move(done)](const Status& status) {
    gpu->input.writes->WhenEnded([gpu, done, status](const Status& read) {
      gpu->output.writes->WhenEnded([gpu, done, first = status.ok() ? read : status](const Status& written) {
        done(first.ok() ? written : first);
      });
    });
  };
}

// The end of requests that a thread waits for.
class Outcome {
 public:
  explicit Outcome(std::size_t requests) : left_(requests), ended_(requests == 0) {}

  // One of them has ended.
  void Add(const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (status_.ok()) status_ = status;
      if (--left_ > 0) return;
    }
    ended_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  // Waits for all, and returns the first error.
  Status Await() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return left_ == 0; });
    return status_;
  }
  const std::atomic<bool>& ended() const { return ended_; }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::size_t left_;  // guarded by mu_, as is status_
  Status status_;
  std::atomic<bool> ended_;
};

// The requests behind the opaque smddp_operation.
struct Started {
  std::shared_ptr<Engine> engine;
  CommunicatorId communicator = kWorld;
  std::shared_ptr<Outcome> outcome;
};

Started* StartedOf(smddp_operation* operation) { return reinterpret_cast<Started*>(operation); }

// Converts a request for an engine.
Status Prepare(const smddp_request* from, Engine* engine, Converted* converted) {
  if (engine == nullptr) return NotInitialized();
  Status status = Convert(from, converted);
  if (status.code() == StatusCode::kDeviceLost) {
    engine->Abort("rank " + std::to_string(engine->config().rank) + ": " + status.message());
  }
  return status;
}

// Has the end of the request added to `outcome`.
Request WithOutcome(Converted converted, const std::shared_ptr<Outcome>& outcome) {
  Request request = std::move(converted.request);
  request.callback_is_trivial = converted.gpu == nullptr;
  request.done =
      WhenOver(std::move(converted.gpu), [outcome](const Status& status) { outcome->Add(status); });
  return request;
}

}  // namespace
}  // namespace tf_smddp

using ::tf_smddp::Converted;
using ::tf_smddp::Engine;
using ::tf_smddp::Outcome;
using ::tf_smddp::Report;
using ::tf_smddp::Request;
using ::tf_smddp::Started;
using ::tf_smddp::Status;

extern "C" {

void* smddp_allocate(size_t bytes) {
  ::tf_smddp::Arena* const arena = ::tf_smddp::TheArenas().Current();
  void* const data = arena == nullptr ? nullptr : arena->Allocate(bytes);
  if (data != nullptr) return data;
  constexpr std::size_t kAlignment = ::tf_smddp::SpanAllocator::kAlignment;
  if (bytes > SIZE_MAX - kAlignment) return nullptr;
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

void smddp_free(void* data) {
  ::tf_smddp::Arena* const arena = ::tf_smddp::TheArenas().Find(data);
  arena != nullptr ? arena->Free(data) : std::free(data);
}

int smddp_is_in_arena(const void* data) { return ::tf_smddp::TheArenas().Find(data) != nullptr ? 1 : 0; }

void smddp_request_init(smddp_request* request, size_t struct_size) {
  std::memset(request, 0, struct_size);
  request->struct_size = struct_size;
  request->prescale = 1.0;
  request->postscale = 1.0;
}

smddp_result smddp_submit(const smddp_request* from, smddp_done done, void* context) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  Converted converted;
  const Status status = ::tf_smddp::Prepare(from, engine.get(), &converted);
  if (!status.ok()) return Report(status);
  Request request = std::move(converted.request);
  request.done = ::tf_smddp::WhenOver(std::move(converted.gpu), [done, context](const Status& end) {
    done(context, ::tf_smddp::CResultOf(end), ::tf_smddp::ValidUtf8(end.message()).c_str());
  });
  engine->Submit(std::move(request));
  return SMDDP_SUCCESS;
}

smddp_result smddp_run(const smddp_request* from) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  Converted converted;
  const Status status = ::tf_smddp::Prepare(from, engine.get(), &converted);
  if (!status.ok()) return Report(status);
  const auto outcome = std::make_shared<Outcome>(1);
  Request request = ::tf_smddp::WithOutcome(std::move(converted), outcome);
  request.caller_progresses = true;
  request.seals_at_once = true;
  engine->SubmitAndProgress(
      request.communicator, ::tf_smddp::Caller::kBlocking, [&] { engine->Submit(std::move(request)); },
      outcome->ended());
  return Report(outcome->Await());
}

smddp_result smddp_start(const smddp_request* const* requests, size_t count, smddp_operation** operation) {
  auto started = std::make_unique<Started>();
  started->engine = ::tf_smddp::GlobalEngine();
  if (started->engine == nullptr) return Report(::tf_smddp::NotInitialized());
  std::vector<Converted> converted(count);
  for (std::size_t i = 0; i < count; ++i) {
    Status status = ::tf_smddp::Prepare(requests[i], started->engine.get(), &converted[i]);
    if (i == 0) started->communicator = converted[0].request.communicator;
    if (status.ok() && converted[i].request.communicator != started->communicator) {
      status = ::tf_smddp::InvalidArgument("the requests of one operation are of communicators " +
                                           std::to_string(started->communicator) + " and " +
                                           std::to_string(converted[i].request.communicator) +
                                           "; start those of each communicator by themselves");
    }
    if (!status.ok()) return Report(status);
  }
  started->outcome = std::make_shared<Outcome>(count);
  for (Converted& each : converted) {
    started->engine->Submit(::tf_smddp::WithOutcome(std::move(each), started->outcome));
  }
  *operation = reinterpret_cast<smddp_operation*>(started.release());
  return SMDDP_SUCCESS;
}

int smddp_test(smddp_operation* operation) {
  return ::tf_smddp::StartedOf(operation)->outcome->ended().load() ? 1 : 0;
}

smddp_result smddp_wait(smddp_operation* operation) {
  const Started& started = *::tf_smddp::StartedOf(operation);
  if (!started.outcome->ended().load()) {
    started.engine->SubmitAndProgress(
        started.communicator, ::tf_smddp::Caller::kBlocking, [] {}, started.outcome->ended());
  }
  return Report(started.outcome->Await());
}

void smddp_release(smddp_operation* operation) { delete ::tf_smddp::StartedOf(operation); }

smddp_result smddp_draw_ticket(smddp_communicator communicator, uint64_t* ticket) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  return Report(engine == nullptr ? ::tf_smddp::NotInitialized()
                                  : engine->DrawTicket(communicator, ::tf_smddp::kNoStep, ticket));
}

}  // extern "C"
