#include "kernels/mpi/library.h"

#include <dlfcn.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/mpi/abi.h"

namespace tf_smddp::mpi {
namespace {

constexpr int kSuccess = 0;
constexpr std::size_t kLongestText = 8192;  // of all interfaces

template <typename Abi>
class LibraryOf final : public Library {
 public:
  Status Load(void* file);

  bool IsOpenMpi() const override { return std::is_same_v<Abi, OpenMpiAbi>; }
  bool Initialized() override { return Flag(initialized_); }
  bool Finalized() override { return Flag(finalized_); }
  Status Initialize() override {
    int provided = 0;
    return Check("MPI_Init_thread", init_thread_(nullptr, nullptr, Abi::kSerialized, &provided));
  }
  ThreadLevel Threads() override {
    int level = 0;
    query_thread_(&level);
    if (level >= Abi::kMultiple) return ThreadLevel::kMultiple;
    return level >= Abi::kSerialized ? ThreadLevel::kSerialized : ThreadLevel::kLess;
  }
  Status Finalize() override { return Check("MPI_Finalize", finalize_()); }

  Status World(int* rank, int* size) override {
    const Status status = Check("MPI_Comm_rank", comm_rank_(world_, rank));
    return status.ok() ? Check("MPI_Comm_size", comm_size_(world_, size)) : status;
  }

  // MPI writes the communicator's handle when the request ends, so `communicator` must stay where it is.
  Status DuplicateWorld(Handle* communicator, Handle* request) override {
    static_assert(sizeof(Raw) <= sizeof communicator->bits);
    *communicator = {};
    return Begin("MPI_Comm_idup", request, [&](Raw* raw) {
      return comm_idup_(world_, reinterpret_cast<Raw*>(&communicator->bits), raw);
    });
  }
  Status ReturnErrors(Handle communicator) override {
    return Check("MPI_Comm_set_errhandler", comm_set_errhandler_(RawOf(communicator), errors_return_));
  }
  Status AllGather(Handle communicator, const void* own, int bytes, void* all, Handle* request) override {
    return Begin("MPI_Iallgather", request, [&](Raw* raw) {
      return iallgather_(own, bytes, byte_, all, bytes, byte_, RawOf(communicator), raw);
    });
  }
  Status Send(Handle communicator, const void* data, int bytes, int to, int tag, Handle* request) override {
    return Begin("MPI_Isend", request,
                 [&](Raw* raw) { return isend_(data, bytes, byte_, to, tag, RawOf(communicator), raw); });
  }
  Status Receive(Handle communicator, void* data, int bytes, int from, int tag, Handle* request) override {
    return Begin("MPI_Irecv", request,
                 [&](Raw* raw) { return irecv_(data, bytes, byte_, from, tag, RawOf(communicator), raw); });
  }
  Status Test(Handle* request, bool* done) override {
    Raw raw = RawOf(*request);
    int flag = 0;
    MessageStatus status;
    const int code = test_(&raw, &flag, &status);
    *request = HandleOf(raw);
    *done = flag != 0;
    return Check("MPI_Test", code);
  }
  Status TestSome(const std::vector<Handle>& requests, std::vector<Ended>* ended) override {
    ended->clear();
    raw_.clear();
    for (const Handle& request : requests) raw_.push_back(RawOf(request));
    indices_.resize(raw_.size());
    statuses_.resize(raw_.size());
    int count = 0;
    const int code =
        test_some_(static_cast<int>(raw_.size()), raw_.data(), &count, indices_.data(), statuses_.data());
    for (int i = 0; i < count; ++i) {  // less than 0 if there was nothing to ask for
      const auto place = static_cast<std::size_t>(i);
      // Only if the call failed do the statuses have errors.
      const int error = code == kSuccess ? kSuccess : statuses_[place].error;
      ended->push_back({static_cast<std::size_t>(indices_[place]), Check("MPI_Testsome", error)});
    }
    return ended->empty() ? Check("MPI_Testsome", code) : Status();
  }
  Status Probe(Handle communicator, int tag, bool* there, int* from, int* bytes) override {
    int flag = 0;
    MessageStatus status;
    const int code = iprobe_(Abi::kAnySource, tag, RawOf(communicator), &flag, &status);
    *there = code == kSuccess && flag != 0;
    if (!*there) return Check("MPI_Iprobe", code);
    *from = status.source;
    return Check("MPI_Get_count", get_count_(&status, byte_, bytes));
  }

 private:
  using Raw = typename Abi::RawHandle;
  using MessageStatus = typename Abi::MessageStatus;

  static Raw RawOf(Handle handle) {
    Raw raw;
    std::memcpy(&raw, &handle.bits, sizeof raw);
    return raw;
  }
  static Handle HandleOf(Raw raw) {
    Handle handle;
    std::memcpy(&handle.bits, &raw, sizeof raw);
    return handle;
  }

  static bool Flag(int (*function)(int*)) {
    int flag = 0;
    return function(&flag) == kSuccess && flag != 0;
  }

  template <typename Call>
  Status Begin(const char* name, Handle* request, Call call) {
    Raw raw{};
    const int code = call(&raw);
    *request = HandleOf(raw);
    return Check(name, code);
  }

  Status Check(const char* name, int code) const {
    if (code == kSuccess) return {};
    std::vector<char> text(kLongestText);
    int length = 0;
    const bool known = error_string_(code, text.data(), &length) == kSuccess;
    return Internal(std::string(name) +
                    " failed: " + (known ? std::string(text.data()) : "error " + std::to_string(code)));
  }

  Raw Constant(void* file, const char* symbol, std::string* missing) {
    void* const address = ::dlsym(file, symbol);
    if (address == nullptr && missing->empty()) *missing = symbol;
    Raw raw{};
    std::memcpy(&raw, &address, sizeof raw);
    return raw;
  }
  Raw Constant(void*, std::uint64_t value, std::string*) { return RawOf({value}); }

  int (*initialized_)(int*);
  int (*finalized_)(int*);
  int (*init_thread_)(int*, char***, int, int*);
  int (*query_thread_)(int*);
  int (*finalize_)();
  int (*comm_rank_)(Raw, int*);
  int (*comm_size_)(Raw, int*);
  int (*comm_idup_)(Raw, Raw*, Raw*);
  int (*comm_set_errhandler_)(Raw, Raw);
  int (*iallgather_)(const void*, int, Raw, void*, int, Raw, Raw, Raw*);
  int (*isend_)(const void*, int, Raw, int, int, Raw, Raw*);
  int (*irecv_)(void*, int, Raw, int, int, Raw, Raw*);
  int (*test_)(Raw*, int*, MessageStatus*);
  int (*test_some_)(int, Raw*, int*, int*, MessageStatus*);
  int (*iprobe_)(int, int, Raw, int*, MessageStatus*);
  int (*get_count_)(const MessageStatus*, Raw, int*);
  int (*error_string_)(int, char*, int*);
  int (*get_library_version_)(char*, int*);
  Raw world_, byte_, errors_return_;
  // For TestSome, which so allocates nothing.
  std::vector<Raw> raw_;
  std::vector<int> indices_;
  std::vector<MessageStatus> statuses_;
};

template <typename Abi>
Status LibraryOf<Abi>::Load(void* file) {
  std::string missing;
  const auto find = [&](const char* symbol, auto* field) {
    *field = reinterpret_cast<std::remove_pointer_t<decltype(field)>>(::dlsym(file, symbol));
    if (*field == nullptr && missing.empty()) missing = symbol;
  };
  find("MPI_Initialized", &initialized_);
  find("MPI_Finalized", &finalized_);
  find("MPI_Init_thread", &init_thread_);
  find("MPI_Query_thread", &query_thread_);
  find("MPI_Finalize", &finalize_);
  find("MPI_Comm_rank", &comm_rank_);
  find("MPI_Comm_size", &comm_size_);
  find("MPI_Comm_idup", &comm_idup_);
  find("MPI_Comm_set_errhandler", &comm_set_errhandler_);
  find("MPI_Iallgather", &iallgather_);
  find("MPI_Isend", &isend_);
  find("MPI_Irecv", &irecv_);
  find("MPI_Test", &test_);
  find("MPI_Testsome", &test_some_);
  find("MPI_Iprobe", &iprobe_);
  find("MPI_Get_count", &get_count_);
  find("MPI_Error_string", &error_string_);
  find("MPI_Get_library_version", &get_library_version_);
  world_ = Constant(file, Abi::kWorld, &missing);
  byte_ = Constant(file, Abi::kByte, &missing);
  errors_return_ = Constant(file, Abi::kErrorsReturn, &missing);
  Dl_info info = {};
  const std::string path = ::dladdr(reinterpret_cast<void*>(init_thread_), &info) != 0 ? info.dli_fname : "";
  if (!missing.empty()) {
    return Internal("the library '" + path + "' has no " + missing + ", which MPI 3.0 has");
  }
  std::vector<char> version(kLongestText);
  int length = 0;
  const Status status = Check("MPI_Get_library_version", get_library_version_(version.data(), &length));
  if (!status.ok()) return status;
  // "Open MPI v4.1.4, package: …", or "MPICH Version:      5.0.2\nMPICH Release date: …".
  for (const char* at = version.data(); *at != '\0' && *at != ',' && *at != '\n'; ++at) {
    if (*at != ' ' || (!description_.empty() && description_.back() != ' ')) description_ += *at;
  }
  description_ += " (" + path + ")";
  return {};
}

template <typename Abi>
std::unique_ptr<Library> LoadAs(void* file, Status* status) {
  auto library = std::make_unique<LibraryOf<Abi>>();
  *status = library->Load(file);
  if (!status->ok()) return nullptr;
  return library;
}

// A library with the standard interface says which version of it, -1 or 0 for none.
bool HasStandardAbi(void* file) {
  const auto get_version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(file, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return get_version != nullptr && get_version(&major, &minor) == kSuccess && major >= 1;
}

}  // namespace

std::unique_ptr<Library> Library::Open(const std::string& path, Status* status) {
  *status = {};
  // Open MPI opens further libraries, which look for its symbols among the global ones.
  void* const file = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (file == nullptr) {
    *status = Internal(::dlerror());
    return nullptr;
  }
  if (HasStandardAbi(file)) return LoadAs<StandardAbi>(file, status);
  if (::dlsym(file, OpenMpiAbi::kWorld) != nullptr) return LoadAs<OpenMpiAbi>(file, status);
  return LoadAs<MpichAbi>(file, status);
}

}  // namespace tf_smddp::mpi
