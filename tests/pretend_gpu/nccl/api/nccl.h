// The part of NCCL's API that the stand-in has, declared from NCCL's documentation, so that neither the
// stand-in nor its tests need an NCCL package. Its streams are the driver API's.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_API_NCCL_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_API_NCCL_H_

#include <climits>
#include <cstddef>

#include "tests/pretend_gpu/api/driver.h"

inline constexpr int NCCL_VERSION_CODE = 22105;  // 2.21.5
inline constexpr int NCCL_UNIQUE_ID_BYTES = 128;
inline constexpr int NCCL_CONFIG_UNDEF_INT = INT_MIN;
inline constexpr int NCCL_SPLIT_NOCOLOR = -1;
inline constexpr unsigned NCCL_CONFIG_MAGIC = 0xcafebeef;

using ncclComm_t = struct ncclComm*;

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclNumTypes = 10,
};

// Values from ncclNumOps on are those that ncclRedOpCreatePreMulSum made.
enum ncclRedOp_t : int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = INT_MAX,
};

enum ncclScalarResidence_t : int {
  ncclScalarDevice = 0,
  ncclScalarHostImmediate = 1,
};

// Later versions of NCCL have more members behind these.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = NCCL_CONFIG_MAGIC;
  unsigned version = NCCL_VERSION_CODE;
  int blocking = NCCL_CONFIG_UNDEF_INT;
  int cgaClusterSize = NCCL_CONFIG_UNDEF_INT;
  int minCTAs = NCCL_CONFIG_UNDEF_INT;
  int maxCTAs = NCCL_CONFIG_UNDEF_INT;
  const char* netName = nullptr;
  int splitShare = NCCL_CONFIG_UNDEF_INT;
};

#define PRETEND_NCCL_API PRETEND_GPU_API ncclResult_t

// Version and errors.
PRETEND_NCCL_API ncclGetVersion(int* version);
PRETEND_GPU_API const char* ncclGetErrorString(ncclResult_t result);
PRETEND_GPU_API const char* ncclGetLastError(ncclComm_t comm);

// Communicators.
PRETEND_NCCL_API ncclGetUniqueId(ncclUniqueId* id);
PRETEND_NCCL_API ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
PRETEND_NCCL_API ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                        ncclConfig_t* config);
PRETEND_NCCL_API ncclCommInitAll(ncclComm_t* comms, int count, const int* devices);
PRETEND_NCCL_API ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
PRETEND_NCCL_API ncclCommFinalize(ncclComm_t comm);
PRETEND_NCCL_API ncclCommDestroy(ncclComm_t comm);
PRETEND_NCCL_API ncclCommAbort(ncclComm_t comm);
PRETEND_NCCL_API ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
PRETEND_NCCL_API ncclCommCount(ncclComm_t comm, int* count);
PRETEND_NCCL_API ncclCommCuDevice(ncclComm_t comm, int* device);
PRETEND_NCCL_API ncclCommUserRank(ncclComm_t comm, int* rank);

// Memory.
PRETEND_NCCL_API ncclMemAlloc(void** address, std::size_t bytes);
PRETEND_NCCL_API ncclMemFree(void* address);
PRETEND_NCCL_API ncclCommRegister(ncclComm_t comm, void* address, std::size_t bytes, void** handle);
PRETEND_NCCL_API ncclCommDeregister(ncclComm_t comm, void* handle);

// Reductions of one's own.
PRETEND_NCCL_API ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                          ncclScalarResidence_t residence, ncclComm_t comm);
PRETEND_NCCL_API ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

// Collectives.
PRETEND_NCCL_API ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream);
PRETEND_NCCL_API ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream);
PRETEND_NCCL_API ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, CUstream stream);
PRETEND_NCCL_API ncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream);
PRETEND_NCCL_API ncclAllGather(const void* send, void* receive, std::size_t send_count, ncclDataType_t type,
                               ncclComm_t comm, CUstream stream);
PRETEND_NCCL_API ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream);

// Between two ranks.
PRETEND_NCCL_API ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          CUstream stream);
PRETEND_NCCL_API ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          CUstream stream);

// Groups.
PRETEND_NCCL_API ncclGroupStart();
PRETEND_NCCL_API ncclGroupEnd();

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_API_NCCL_H_
