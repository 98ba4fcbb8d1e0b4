// A library between a program and NCCL, with faults; README.md.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/nccl/api/nccl.h"

namespace {

using Clock = std::chrono::steady_clock;

// Returns a function of NCCL, or of the driver.
template <typename Function>
Function* Find(void* library, const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(library, name));
  if (found == nullptr) {
    std::fprintf(stderr, "libnccl_faulty.so: there is no %s behind it\n", name);
    std::abort();
  }
  return found;
}

void* Open(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "libnccl_faulty.so: %s\n", ::dlerror());
    std::abort();
  }
  return library;
}

void* Nccl() {
  static void* const library = [] {
    const char* const path = std::getenv("FAULTY_NCCL_LIBRARY");
    return Open(path == nullptr ? "libnccl.so.2" : path);
  }();
  return library;
}

void* Cuda() {
  static void* const library = Open("libcuda.so.1");
  return library;
}

#define REAL(name) (*Find<decltype(name)>(Nccl(), #name))

// Whether a variable of this process has the value that takes the faults away.
bool IsHealed() {
  const char* const text = std::getenv("FAULTY_NCCL_UNLESS");
  const std::string unless = text == nullptr ? "" : text;
  const std::size_t sign = unless.find('=');
  if (sign == std::string::npos) return false;
  const char* const value = std::getenv(unless.substr(0, sign).c_str());
  return value != nullptr && unless.substr(sign + 1) == value;
}

// NUMBER of each kind that holds for a rank; 0 if it has none.
std::map<std::string, int> FaultsOf(int rank) {
  std::map<std::string, int> faults;
  if (IsHealed()) return faults;
  const char* const text = std::getenv("FAULTY_NCCL");
  std::istringstream all(text == nullptr ? "" : text);
  for (std::string fault; std::getline(all, fault, ',');) {
    std::istringstream parts(fault);
    std::string kind, of, number;
    std::getline(parts, kind, ':');
    std::getline(parts, of, ':');
    std::getline(parts, number, ':');
    if (std::atoi(of.c_str()) == rank) faults[kind] = std::atoi(number.c_str());
  }
  return faults;
}

std::atomic<bool> has_failed{false};  // so that ncclGetLastError has a text

// A program has it as its ncclComm_t. It is never freed: a stream may come to it late.
struct Faulty {
  ncclComm_t real = nullptr;
  std::map<std::string, int> faults;
  Clock::time_point made = Clock::now();
  int collectives = 0;
  std::vector<std::pair<void*, CUstream>> to_spoil;
  std::mutex mu;
  std::condition_variable changed;
  bool aborted = false;                    // guarded by mu
  std::shared_ptr<std::atomic<int>> late;  // so many of its ranks in this process are late, and not ready yet
  bool is_late = false;                    // counted there

  bool Has(const char* kind) const { return faults.count(kind) != 0; }
};

Faulty* Of(ncclComm_t comm) { return reinterpret_cast<Faulty*>(comm); }

ncclResult_t Failure() {
  has_failed = true;
  return ncclSystemError;
}

void AwaitAbort(void* data) {
  auto* const faulty = static_cast<Faulty*>(data);
  std::unique_lock<std::mutex> lock(faulty->mu);
  faulty->changed.wait(lock, [&] { return faulty->aborted; });
}

thread_local Faulty* blocks_at_end = nullptr;  // the end of this thread's group does not return

// Before a collective: the first one may hang.
Faulty* Begin(ncclComm_t comm, CUstream stream) {
  Faulty* const faulty = Of(comm);
  if (faulty->Has("launch_blocks")) blocks_at_end = faulty;
  if (faulty->Has("kernel_hangs") && faulty->collectives == 0) {
    Find<decltype(cuLaunchHostFunc)>(Cuda(), "cuLaunchHostFunc")(stream, AwaitAbort, faulty);
  }
  ++faulty->collectives;
  if (*faulty->late > 0) {
    std::fprintf(stderr,
                 "libnccl_faulty.so: a collective begins before the communicator of each rank is ready\n");
    std::abort();
  }
  return faulty;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const char* const said = ::getenv("FAULTY_NCCL_VERSION");
  if (said == nullptr) return REAL(ncclGetVersion)(version);
  *version = ::atoi(said);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) { return REAL(ncclGetErrorString)(result); }

const char* ncclGetLastError(ncclComm_t) {
  const char* const text = std::getenv("FAULTY_NCCL_TEXT");
  return has_failed && text != nullptr ? text : REAL(ncclGetLastError)(nullptr);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  while (FaultsOf(0).count("id_blocks") != 0) ::pause();
  return REAL(ncclGetUniqueId)(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static auto& mu = *new std::mutex;
  static auto& all = *new std::vector<std::unique_ptr<Faulty>>;
  static auto& late = *new std::map<std::string, std::shared_ptr<std::atomic<int>>>;  // by id
  auto made = std::make_unique<Faulty>();
  Faulty* const faulty = made.get();
  {
    std::lock_guard<std::mutex> lock(mu);
    all.push_back(std::move(made));
    auto& its = late[std::string(id.internal, sizeof id.internal)];
    if (its == nullptr) its = std::make_shared<std::atomic<int>>(0);
    faulty->late = its;
  }
  faulty->faults = FaultsOf(rank);
  *comm = reinterpret_cast<ncclComm_t>(faulty);
  while (faulty->Has("init_blocks")) ::pause();
  if (faulty->Has("init_fails") || faulty->Has("init_hangs")) return ncclInProgress;
  faulty->is_late = faulty->Has("late");
  if (faulty->is_late) ++*faulty->late;
  return REAL(ncclCommInitRankConfig)(&faulty->real, ranks, id, rank, config);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Faulty* const faulty = Of(comm);
  {
    std::lock_guard<std::mutex> lock(faulty->mu);
    faulty->aborted = true;
  }
  faulty->changed.notify_all();
  if (std::exchange(faulty->is_late, false)) --*faulty->late;
  const ncclResult_t result = faulty->real == nullptr ? ncclSuccess : REAL(ncclCommAbort)(faulty->real);
  while (faulty->Has("abort_hangs")) ::pause();
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Faulty* const faulty = Of(comm);
  *error = ncclInProgress;
  if (faulty->Has("init_hangs")) return ncclSuccess;
  if (faulty->Has("init_fails")) *error = Failure();
  if (faulty->Has("init_fails")) return ncclSuccess;
  if (faulty->Has("late") &&
      Clock::now() - faulty->made < std::chrono::milliseconds(faulty->faults["late"])) {
    return ncclSuccess;
  }
  const ncclResult_t result = REAL(ncclCommGetAsyncError)(faulty->real, error);
  if (result != ncclSuccess || *error != ncclSuccess) return result;
  if (std::exchange(faulty->is_late, false)) --*faulty->late;
  // The collectives are on their streams now.
  for (const auto& [data, stream] : faulty->to_spoil) {
    constexpr unsigned kWrong = 0xbadbad;
    Find<decltype(cuMemsetD32Async)>(Cuda(), "cuMemsetD32Async")(reinterpret_cast<CUdeviceptr>(data), kWrong,
                                                                 1, stream);
  }
  faulty->to_spoil.clear();
  if (faulty->Has("fails_after") && faulty->collectives > faulty->faults["fails_after"]) *error = Failure();
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return REAL(ncclRedOpCreatePreMulSum)(op, scalar, type, residence, Of(comm)->real);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return REAL(ncclRedOpDestroy)(op, Of(comm)->real);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  Faulty* const faulty = Begin(comm, stream);
  if (faulty->Has("wrong_sums")) faulty->to_spoil.emplace_back(receive, stream);
  return REAL(ncclAllReduce)(send, receive, count, type, op, faulty->real, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  return REAL(ncclReduce)(send, receive, count, type, op, root, Begin(comm, stream)->real, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, CUstream stream) {
  return REAL(ncclBroadcast)(send, receive, count, type, root, Begin(comm, stream)->real, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  return REAL(ncclAllGather)(send, receive, send_count, type, Begin(comm, stream)->real, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return REAL(ncclReduceScatter)(send, receive, receive_count, type, op, Begin(comm, stream)->real, stream);
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  return REAL(ncclSend)(send, count, type, peer, Of(comm)->real, stream);
}

ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  Faulty* const faulty = Of(comm);
  if (faulty->Has("wrong_exchange")) faulty->to_spoil.emplace_back(receive, stream);
  return REAL(ncclRecv)(receive, count, type, peer, faulty->real, stream);
}

ncclResult_t ncclGroupStart() { return REAL(ncclGroupStart)(); }
ncclResult_t ncclGroupEnd() {
  if (blocks_at_end == nullptr) return REAL(ncclGroupEnd)();
  AwaitAbort(std::exchange(blocks_at_end, nullptr));
  // It launches nothing any more, and lets go of the calls' memory.
  static_cast<void>(REAL(ncclGroupEnd)());
  return Failure();
}
