#include "kernels/collectives/backends/nccl/nccl_library.h"

#include <dlfcn.h>

#include <type_traits>

namespace tf_smddp::nccl {
namespace {

constexpr char kName[] = "libnccl.so.2";
constexpr char kRemedy[] = "; install a newer one: pip install --upgrade nvidia-nccl-cu12";
constexpr int kOldest = 21400;  // communicators that do not block

// Before 2.9, a version had one digit less for the minor number.
std::string VersionText(int code) {
  const int major = code < 10000 ? 1000 : 10000;
  return std::to_string(code / major) + "." + std::to_string(code % major / 100) + "." +
         std::to_string(code % 100);
}

// Returns the library's handle, or nullptr and why there is none.
void* OpenFile(const std::string& path, Status* status) {
  std::string tried;
  for (const std::string& name : {path, std::string(kName)}) {
    if (name.empty()) continue;
    void* const file = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (file != nullptr) return file;
    tried += std::string(tried.empty() ? "" : "; ") + ::dlerror();
  }
  *status = Internal("NCCL cannot be opened: " + tried + "; install it: pip install nvidia-nccl-cu12");
  return nullptr;
}

Status Load(void* file, Library* library) {
  std::string missing;
  const auto find = [&](const char* symbol, auto* field) {
    *field = reinterpret_cast<std::remove_pointer_t<decltype(field)>>(::dlsym(file, symbol));
    if (*field == nullptr && missing.empty()) missing = symbol;
  };
  find("ncclGetVersion", &library->GetVersion);
  if (!missing.empty()) return Internal("the library that was opened as NCCL has no function " + missing);
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<void*>(library->GetVersion), &info) != 0) library->path = info.dli_fname;
  int version = 0;
  if (library->GetVersion(&version) != kSuccess) return Internal(library->path + ": ncclGetVersion failed");
  library->version = VersionText(version);
  const std::string named = "NCCL " + library->version + " (" + library->path + ")";
  if (version < kOldest) {
    return Internal(named + " is too old: communicators that do not block need " + VersionText(kOldest) +
                    " or later" + kRemedy);
  }
  find("ncclGetErrorString", &library->GetErrorString);
  find("ncclGetLastError", &library->GetLastError);
  find("ncclGetUniqueId", &library->GetUniqueId);
  find("ncclCommInitRankConfig", &library->CommInitRankConfig);
  find("ncclCommAbort", &library->CommAbort);
  find("ncclCommGetAsyncError", &library->CommGetAsyncError);
  find("ncclRedOpCreatePreMulSum", &library->RedOpCreatePreMulSum);
  find("ncclRedOpDestroy", &library->RedOpDestroy);
  find("ncclAllReduce", &library->AllReduce);
  find("ncclReduce", &library->Reduce);
  find("ncclBroadcast", &library->Broadcast);
  find("ncclAllGather", &library->AllGather);
  find("ncclReduceScatter", &library->ReduceScatter);
  find("ncclSend", &library->Send);
  find("ncclRecv", &library->Recv);
  find("ncclGroupStart", &library->GroupStart);
  find("ncclGroupEnd", &library->GroupEnd);
  if (!missing.empty()) return Internal(named + " has no function " + missing + kRemedy);
  return {};
}

}  // namespace

std::unique_ptr<const Library> Library::Open(const std::string& path, Status* status) {
  *status = {};
  void* const file = OpenFile(path, status);
  if (file == nullptr) return nullptr;
  auto library = std::make_unique<Library>();
  *status = Load(file, library.get());
  if (!status->ok()) return nullptr;
  return library;
}

Status Library::Check(const char* call, Result result) const {
  if (result == kSuccess || result == kInProgress) return {};
  const char* const text = GetErrorString(result);
  const char* const last = GetLastError(nullptr);
  std::string message = std::string(call) + " failed: " + (text == nullptr ? "an unknown error" : text) +
                        " (" + std::to_string(result) + ")";
  if (last != nullptr && *last != '\0') message += std::string(": ") + last;
  return Internal(message);
}

bool Library::BlamesAnother(const Status& status) {
  return status.message().find(" (" + std::to_string(kRemoteError) + ")") != std::string::npos;
}

}  // namespace tf_smddp::nccl
