// Library: the functions of NCCL that we call, found at run time.
//
// Place in the stack: the bottom of this folder. Nothing links NCCL, and no header of NCCL is needed to
// build: the declarations below follow its documentation, and nccl_header_test holds them to its header. The
// binary interface of NCCL 2 only grows.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_LIBRARY_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_LIBRARY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/common/status.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::nccl {

using Handle = struct HandleTag*;  // ncclComm_t
using Result = int;                // ncclResult_t
using Op = int;                    // ncclRedOp_t

enum : Result { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };

enum class DataType : int {
  kInt8 = 0,
  kUInt8 = 1,
  kInt32 = 2,
  kUInt32 = 3,
  kInt64 = 4,
  kUInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};

enum : Op { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

constexpr int kScalarOnHost = 1;  // ncclScalarHostImmediate

// The name by which ranks find each other: one of them makes it, and sends it to the others.
struct UniqueId {
  char bytes[128];
};

// How a communicator is made: ncclConfig_t as of NCCL 2.14. Later versions have more members, and take the
// defaults for those that the config's version did not have.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// The fields are called as NCCL's functions, without "nccl".
struct Library {
  Result (*GetVersion)(int*) = nullptr;
  const char* (*GetErrorString)(Result) = nullptr;
  const char* (*GetLastError)(Handle) = nullptr;
  Result (*GetUniqueId)(UniqueId*) = nullptr;
  Result (*CommInitRankConfig)(Handle*, int num_ranks, UniqueId, int rank, Config*) = nullptr;
  Result (*CommAbort)(Handle) = nullptr;
  Result (*CommGetAsyncError)(Handle, Result*) = nullptr;
  Result (*RedOpCreatePreMulSum)(Op*, void* scalar, DataType, int residence, Handle) = nullptr;
  Result (*RedOpDestroy)(Op, Handle) = nullptr;
  Result (*AllReduce)(const void* send, void* receive, std::size_t count, DataType, Op, Handle,
                      cuda::Stream) = nullptr;
  Result (*Reduce)(const void* send, void* receive, std::size_t count, DataType, Op, int root, Handle,
                   cuda::Stream) = nullptr;
  Result (*Broadcast)(const void* send, void* receive, std::size_t count, DataType, int root, Handle,
                      cuda::Stream) = nullptr;
  Result (*AllGather)(const void* send, void* receive, std::size_t send_count, DataType, Handle,
                      cuda::Stream) = nullptr;
  Result (*ReduceScatter)(const void* send, void* receive, std::size_t receive_count, DataType, Op, Handle,
                          cuda::Stream) = nullptr;
  Result (*Send)(const void* send, std::size_t count, DataType, int peer, Handle, cuda::Stream) = nullptr;
  Result (*Recv)(void* receive, std::size_t count, DataType, int peer, Handle, cuda::Stream) = nullptr;
  Result (*GroupStart)() = nullptr;
  Result (*GroupEnd)() = nullptr;

  std::string version;  // "2.21.5"
  std::string path;     // of the file that was opened

  // Opens NCCL: the file at `path`, if there is one, and otherwise the libnccl.so.2 that the system finds; ""
  // is no path. NCCL itself stays open for as long as the process runs, since it has threads of its own. The
  // result outlives all that use it. It is nullptr if there is no NCCL that can be used, and then
  // *status says why, and what to do. Any thread.
  static std::unique_ptr<const Library> Open(const std::string& path, Status* status);

  // Returns OK for kSuccess, and for kInProgress, which is no error of a call; else Internal:
  // "ncclAllReduce failed: unhandled system error (2): …", with what NCCL has noted last. Any thread.
  Status Check(const char* call, Result result) const;

  // Whether an error of Check says that another rank, or the network, has failed.
  static bool BlamesAnother(const Status& status);
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_LIBRARY_H_
