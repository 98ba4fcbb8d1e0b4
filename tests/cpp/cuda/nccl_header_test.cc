// Holds our declarations of NCCL (nccl_library.h), and those of the pretend NCCL, to NCCL's own header. The
// compiler makes the comparison. BUILD compiles this file with the header of each version in
// third_party/nccl.
#include <climits>
#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/cuda/driver.h"
#include "tests/pretend_gpu/api/driver.h"

// The pretend NCCL has NCCL's names, so its functions are declared in a namespace, and not as C's.
#undef PRETEND_GPU_API
#define PRETEND_GPU_API
namespace pretend {
#include "tests/pretend_gpu/nccl/api/nccl.h"
// These names are macros in NCCL's header.
constexpr int kUniqueIdBytes = NCCL_UNIQUE_ID_BYTES;
constexpr int kUndefined = NCCL_CONFIG_UNDEF_INT;
constexpr int kNoColor = NCCL_SPLIT_NOCOLOR;
constexpr unsigned kMagic = NCCL_CONFIG_MAGIC;
}  // namespace pretend

#include "nccl.h"

namespace tf_smddp::nccl {
namespace {

#ifdef NCCL_VERSION_CODE

// A type of one of the three headers, as nccl_library.h has it.
template <class T>
struct Ours {
  using Type = T;
};
template <class T>
struct Ours<const T> {
  using Type = const typename Ours<T>::Type;
};
template <class T>
struct Ours<T*> {
  using Type = typename Ours<T>::Type*;
};
template <class Returned, class... Parameters>
struct Ours<Returned(Parameters...)> {
  using Type = typename Ours<Returned>::Type(typename Ours<Parameters>::Type...);
};
#define IS_OURS(type, ours)                               \
  static_assert(sizeof(::type) == sizeof(ours));          \
  static_assert(alignof(::type) == alignof(ours));        \
  static_assert(sizeof(pretend::type) == sizeof(ours));   \
  static_assert(alignof(pretend::type) == alignof(ours)); \
  template <>                                             \
  struct Ours<::type> {                                   \
    using Type = ours;                                    \
  };                                                      \
  template <>                                             \
  struct Ours<pretend::type> {                            \
    using Type = ours;                                    \
  }
IS_OURS(ncclComm_t, Handle);
IS_OURS(ncclResult_t, Result);
IS_OURS(ncclDataType_t, DataType);
IS_OURS(ncclRedOp_t, Op);
IS_OURS(ncclScalarResidence_t, int);
IS_OURS(ncclUniqueId, UniqueId);
template <>
struct Ours<cudaStream_t> {  // CUstream, too
  using Type = cuda::Stream;
};
static_assert(std::is_same_v<cudaStream_t, CUstream>);
// NCCL's has more members in later versions; see below.
template <>
struct Ours<::ncclConfig_t> {
  using Type = Config;
};
template <>
struct Ours<pretend::ncclConfig_t> {
  using Type = Config;
};
template <class T>
using OursOf = typename Ours<T>::Type;

// The functions that we call. A new one in nccl_library.h needs a line here.
#define EACH_OF_OURS(with)                                                                                  \
  with(GetVersion) with(GetErrorString) with(GetLastError) with(GetUniqueId) with(CommInitRankConfig)       \
      with(CommAbort) with(CommGetAsyncError) with(RedOpCreatePreMulSum) with(RedOpDestroy) with(AllReduce) \
          with(Reduce) with(Broadcast) with(AllGather) with(ReduceScatter) with(Send) with(Recv)            \
              with(GroupStart) with(GroupEnd)
#define SAME_AS_OURS(name)                                                                         \
  static_assert(std::is_same_v<OursOf<decltype(&::nccl##name)>, OursOf<decltype(Library::name)>>); \
  static_assert(std::is_same_v<OursOf<decltype(&pretend::nccl##name)>, OursOf<decltype(Library::name)>>);
EACH_OF_OURS(SAME_AS_OURS)
#define ONE(name) +1
static_assert(offsetof(Library, version) == (EACH_OF_OURS(ONE)) * sizeof(void*));

// The other functions of the pretend NCCL.
#define SAME(name) static_assert(std::is_same_v<OursOf<decltype(&::name)>, OursOf<decltype(&pretend::name)>>)
SAME(ncclCommInitRank);
SAME(ncclCommInitAll);
SAME(ncclCommFinalize);
SAME(ncclCommDestroy);
SAME(ncclCommCount);
SAME(ncclCommCuDevice);
SAME(ncclCommUserRank);
SAME(ncclBcast);

#define SAME_VALUE(name) static_assert(static_cast<long>(::name) == static_cast<long>(pretend::name))
#define OUR_VALUE(name, ours)                                          \
  static_assert(static_cast<long>(::name) == static_cast<long>(ours)); \
  SAME_VALUE(name)
OUR_VALUE(ncclSuccess, kSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
OUR_VALUE(ncclInProgress, kInProgress);
OUR_VALUE(ncclInt8, DataType::kInt8);
OUR_VALUE(ncclUint8, DataType::kUInt8);
OUR_VALUE(ncclInt32, DataType::kInt32);
OUR_VALUE(ncclUint32, DataType::kUInt32);
OUR_VALUE(ncclInt64, DataType::kInt64);
OUR_VALUE(ncclUint64, DataType::kUInt64);
OUR_VALUE(ncclFloat16, DataType::kFloat16);
OUR_VALUE(ncclFloat32, DataType::kFloat32);
OUR_VALUE(ncclFloat64, DataType::kFloat64);
OUR_VALUE(ncclBfloat16, DataType::kBFloat16);
OUR_VALUE(ncclSum, kSum);
OUR_VALUE(ncclProd, kProduct);
OUR_VALUE(ncclMax, kMax);
OUR_VALUE(ncclMin, kMin);
OUR_VALUE(ncclAvg, kAverage);
SAME_VALUE(ncclNumOps);
SAME_VALUE(ncclMaxRedOp);
SAME_VALUE(ncclScalarDevice);
OUR_VALUE(ncclScalarHostImmediate, kScalarOnHost);
static_assert(NCCL_UNIQUE_ID_BYTES == sizeof(UniqueId) && NCCL_UNIQUE_ID_BYTES == pretend::kUniqueIdBytes);

// NCCL reads these of our config, and a caller of the pretend NCCL may give them to it.
#define SAME_PLACE(member, ours)                                             \
  static_assert(offsetof(::ncclConfig_t, member) == offsetof(ours, member)); \
  static_assert(std::is_same_v<decltype(::ncclConfig_t::member), decltype(ours::member)>)
SAME_PLACE(size, Config);
SAME_PLACE(magic, Config);
SAME_PLACE(version, Config);
SAME_PLACE(blocking, Config);
SAME_PLACE(size, pretend::ncclConfig_t);
SAME_PLACE(magic, pretend::ncclConfig_t);
SAME_PLACE(version, pretend::ncclConfig_t);
SAME_PLACE(blocking, pretend::ncclConfig_t);
static_assert(sizeof(Config) <= sizeof(::ncclConfig_t));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
SAME_PLACE(cgaClusterSize, pretend::ncclConfig_t);
SAME_PLACE(minCTAs, pretend::ncclConfig_t);
SAME_PLACE(maxCTAs, pretend::ncclConfig_t);
SAME_PLACE(netName, pretend::ncclConfig_t);
SAME_PLACE(splitShare, pretend::ncclConfig_t);
SAME(ncclCommSplit);
static_assert(NCCL_SPLIT_NOCOLOR == pretend::kNoColor);
static_assert(NCCL_CONFIG_UNDEF_INT == pretend::kUndefined);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
SAME(ncclMemAlloc);
SAME(ncclMemFree);
SAME(ncclCommRegister);
SAME(ncclCommDeregister);
#endif

TEST(NcclHeader, ItsConfigBeginsAsOurs) {
  const ::ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(theirs.size, sizeof(::ncclConfig_t));
  EXPECT_EQ(theirs.magic, Config().magic);
  EXPECT_EQ(theirs.magic, pretend::kMagic);
  EXPECT_GE(theirs.version, Config().version);
  EXPECT_EQ(NCCL_VERSION_CODE, VERSION);
}

#else

TEST(NcclHeader, ItsConfigBeginsAsOurs) { GTEST_SKIP() << "PyPI could not be reached for NCCL's header"; }

#endif

}  // namespace
}  // namespace tf_smddp::nccl
