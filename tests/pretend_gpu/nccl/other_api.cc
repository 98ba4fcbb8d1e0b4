// The API: version, errors, memory, reductions of one's own.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/buffers.h"
#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/last_error.h"
#include "tests/pretend_gpu/nccl/types.h"

using pretend_gpu::End;
using pretend_gpu::nccl::Communicator;
using pretend_gpu::nccl::CommunicatorOf;
using pretend_gpu::nccl::PreMulSum;

namespace {

std::mutex mu;

// Results of ncclMemAlloc. Guarded by mu.
std::set<void*>& Allocated() {
  static auto* allocated = new std::set<void*>;
  return *allocated;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const pretend_gpu::Call call(__func__);
  if (version == nullptr) End("the address for the version is null");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a call of CUDA failed";
    case ncclSystemError:
      return "a call of the system failed";
    case ncclInternalError:
      return "an internal check failed, or the communicator was aborted";
    case ncclInvalidArgument:
      return "an argument has a value that is not allowed";
    case ncclInvalidUsage:
      return "the calls do not fit together";
    case ncclRemoteError:
      return "another rank has failed, or its process has ended";
    case ncclInProgress:
      return "the call is in progress";
    default:
      return "no result of NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  const pretend_gpu::Call call(__func__);
  if (comm != nullptr) CommunicatorOf(comm);
  return pretend_gpu::nccl::LastError();
}

ncclResult_t ncclMemAlloc(void** address, std::size_t bytes) {
  const pretend_gpu::Call call(__func__);
  if (cudaMalloc(address, bytes) != cudaSuccess) {
    return pretend_gpu::nccl::Refuse(ncclUnhandledCudaError,
                                     "there is no room for " + std::to_string(bytes) + " bytes");
  }
  std::lock_guard<std::mutex> lock(mu);
  Allocated().insert(*address);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* address) {
  const pretend_gpu::Call call(__func__);
  if (address == nullptr) return ncclSuccess;
  {
    std::lock_guard<std::mutex> lock(mu);
    if (Allocated().erase(address) == 0) {
      End("%p is not what ncclMemAlloc returned, or was freed; free once with the function that fits",
          address);
    }
  }
  cudaFree(address);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* address, std::size_t bytes, void** handle) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  if (const ncclResult_t error = communicator->Ready(); error != ncclSuccess) return error;
  static std::atomic<std::uintptr_t> next{1};
  *handle = reinterpret_cast<void*>(next++);
  communicator->registrations[*handle] =
      UseOwnMemory(*communicator, address, bytes, "registered buffer",
                   "a registration (until ncclCommDeregister) with " + communicator->Describe())
          .use;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  if (communicator->registrations.erase(handle) == 0) {
    End("%p is no handle of a registration with %s; pass once what ncclCommRegister returned", handle,
        communicator->Describe().c_str());
  }
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  if (const ncclResult_t error = communicator->Ready(); error != ncclSuccess) return error;
  if (!pretend_gpu::nccl::IsType(type)) End("%d is no data type", int{type});
  const std::size_t bytes = pretend_gpu::nccl::SizeOf(type);
  PreMulSum made = {type, {}, nullptr};
  if (residence == ncclScalarDevice) {
    UseOwnMemory(*communicator, scalar, bytes, "scalar", "ncclRedOpCreatePreMulSum");
    made.on_device = scalar;
  } else if (residence == ncclScalarHostImmediate) {
    if (pretend_gpu_is_device_memory(scalar) != 0) {
      End("the scalar %p is device memory; pass ncclScalarDevice for that", scalar);
    }
    std::memcpy(made.scalar.data(), scalar, bytes);
  } else {
    End("%d is no residence; pass ncclScalarDevice or ncclScalarHostImmediate", int{residence});
  }
  *op = static_cast<ncclRedOp_t>(communicator->pre_mul_sums.Add(made));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  if (op >= 0 && op < ncclNumOps)
    End("op %d is NCCL's own; destroy what ncclRedOpCreatePreMulSum made", int{op});
  if (!communicator->pre_mul_sums.Remove(op)) {
    End("%d is no op of %s; destroy once what ncclRedOpCreatePreMulSum made", int{op},
        communicator->Describe().c_str());
  }
  return ncclSuccess;
}
