// The API: communicators.
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/group.h"
#include "tests/pretend_gpu/nccl/last_error.h"
#include "tests/pretend_gpu/nccl/making.h"
#include "tests/pretend_gpu/nccl/settings.h"
#include "tests/pretend_gpu/nccl/split.h"
#include "tests/pretend_gpu/nccl/unique_id.h"

using pretend_gpu::End;
using pretend_gpu::nccl::Board;
using pretend_gpu::nccl::Communicator;
using pretend_gpu::nccl::CommunicatorOf;
using pretend_gpu::nccl::Communicators;
using pretend_gpu::nccl::Group;
using pretend_gpu::nccl::kMostRanks;
using pretend_gpu::nccl::Making;
using pretend_gpu::nccl::MakingByBoard;
using pretend_gpu::nccl::MakingBySplit;
using pretend_gpu::nccl::Refuse;
using Makings = std::vector<std::unique_ptr<Making>>;

namespace {

// Returns whether calls wait until they are done, which is the default.
bool Blocks(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr) return otherwise;
  if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclConfig_t, cgaClusterSize)) {
    End("the config %p is not initialized; begin with NCCL_CONFIG_INITIALIZER",
        static_cast<const void*>(config));
  }
  return config->blocking == NCCL_CONFIG_UNDEF_INT ? otherwise : config->blocking != 0;
}

// Returns a communicator of the current device, or nullptr if there is no device.
std::shared_ptr<Communicator> OfCurrentDevice(bool blocking) {
  int device = 0;
  CUcontext context = nullptr;
  if (cudaGetDevice(&device) != cudaSuccess || cuCtxGetCurrent(&context) != CUDA_SUCCESS) return nullptr;
  return std::make_shared<Communicator>(device, context, blocking);
}

ncclComm_t Handle(const std::shared_ptr<Communicator>& communicator) {
  return static_cast<ncclComm_t>(Communicators().Add(communicator));
}

// Begins to make it, or does all of it.
ncclResult_t Start(const std::shared_ptr<Communicator>& communicator, std::unique_ptr<Making> making,
                   bool blocking) {
  if (blocking) return Group::Current().Add(std::move(making));
  auto makings = std::make_shared<Makings>();
  makings->push_back(std::move(making));
  communicator->MakeInBackground([makings] { return pretend_gpu::nccl::Make(*makings); });
  return ncclInProgress;
}

void CheckRank(int ranks, int rank) {
  if (ranks < 1 || ranks > kMostRanks) {
    End("a communicator of %d ranks is asked for; the stand-in has 1 to %d", ranks, kMostRanks);
  }
  if (rank < 0 || rank >= ranks) End("rank %d of %d ranks; a rank is from 0 to %d", rank, ranks, ranks - 1);
}

ncclResult_t InitRank(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank, bool blocking) {
  if (handle == nullptr) End("the address for the communicator is null");
  CheckRank(ranks, rank);
  *handle = nullptr;
  auto board = pretend_gpu::nccl::BoardOf(id);
  if (board == nullptr) {
    return Refuse(ncclSystemError, "the process that called ncclGetUniqueId has ended");
  }
  const auto communicator = OfCurrentDevice(blocking);
  if (communicator == nullptr) return Refuse(ncclUnhandledCudaError, "there is no device");
  *handle = Handle(communicator);
  auto making = std::make_unique<MakingByBoard>(communicator, std::move(board), rank, ranks,
                                                blocking ? handle : nullptr);
  return Start(communicator, std::move(making), blocking);
}

// Ends the process if the communicator is in this thread's group.
void CheckNotInGroup(const Communicator& communicator) {
  if (!Group::Current().Has(communicator)) return;
  End("%s has calls in a group that is not ended; call ncclGroupEnd first", communicator.Describe().c_str());
}

// Keeps the boards of ids until all ranks have them, since others find them through this process.
void Keep(std::shared_ptr<Board> board) {
  static auto* mu = new std::mutex;
  static auto* kept = new std::vector<std::shared_ptr<Board>>;
  std::lock_guard<std::mutex> lock(*mu);
  for (auto at = kept->begin(); at != kept->end();) {
    at = pretend_gpu::nccl::AllAreReady(**at) ? kept->erase(at) : at + 1;
  }
  kept->push_back(std::move(board));
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const pretend_gpu::Call call(__func__);
  auto board = Board::Make();
  *id = pretend_gpu::nccl::IdOf(*board);
  Keep(std::move(board));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  const pretend_gpu::Call call(__func__);
  return InitRank(comm, ranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const pretend_gpu::Call call(__func__);
  return InitRank(comm, ranks, id, rank, Blocks(config, true));
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  const pretend_gpu::Call call(__func__);
  CheckRank(count, 0);
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess) return Refuse(ncclUnhandledCudaError, "there is no device");
  const auto board = Board::Make();
  Makings makings;
  for (int rank = 0; rank < count; rank++) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (cudaSetDevice(device) != cudaSuccess) {
      End("device %d is asked for; pass numbers of devices that there are", device);
    }
    const auto communicator = OfCurrentDevice(true);
    comms[rank] = Handle(communicator);
    makings.push_back(std::make_unique<MakingByBoard>(communicator, board, rank, count, &comms[rank]));
  }
  cudaSetDevice(before);
  return pretend_gpu::nccl::Make(makings);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  const pretend_gpu::Call call(__func__);
  const auto parent = CommunicatorOf(comm);
  const Communicator::Using use(parent);
  if (const ncclResult_t error = parent->Ready(); error != ncclSuccess) return error;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    End("color %d; a color is 0 or more, or NCCL_SPLIT_NOCOLOR", color);
  }
  const bool blocking = Blocks(config, parent->blocking);
  const auto communicator = color == NCCL_SPLIT_NOCOLOR
                                ? nullptr
                                : std::make_shared<Communicator>(parent->device, parent->context, blocking);
  *made = communicator == nullptr ? nullptr : Handle(communicator);
  const bool waits = blocking || communicator == nullptr;
  auto making = std::make_unique<MakingBySplit>(parent, color, key, communicator, blocking ? made : nullptr);
  return Start(communicator, std::move(making), waits);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  CheckNotInGroup(*communicator);
  if (const ncclResult_t error = communicator->Ready(); error != ncclSuccess) return error;
  communicator->Flush();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const pretend_gpu::Call call(__func__);
  if (comm == nullptr) return ncclSuccess;
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  CheckNotInGroup(*communicator);
  communicator->Ready();
  communicator->AwaitMaker();
  communicator->Flush();
  Communicators().Remove(comm);
  pretend_gpu::nccl::Retire(communicator, false);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const pretend_gpu::Call call(__func__);
  if (comm == nullptr) return ncclSuccess;
  CheckNotInGroup(*CommunicatorOf(comm));
  const auto communicator = Communicators().Remove(comm);
  communicator->Abort();
  pretend_gpu::WaitAsFreeDoes(communicator->context);
  pretend_gpu::nccl::Retire(communicator, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(pretend_gpu::nccl::GetSettings().abort_ms));
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const pretend_gpu::Call call(__func__);
  *error = CommunicatorOf(comm)->AsyncError();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  communicator->Ready();
  *count = communicator->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  communicator->Ready();
  *device = communicator->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const pretend_gpu::Call call(__func__);
  const auto communicator = CommunicatorOf(comm);
  communicator->Ready();
  *rank = communicator->rank;
  return ncclSuccess;
}
