#include "kernels/mpi/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <thread>

#include "kernels/common/logging.h"
#include "kernels/common/process.h"
#include "kernels/common/thread.h"
#include "kernels/mpi/search.h"

namespace tf_smddp::mpi {
namespace {

constexpr std::chrono::microseconds kPoll{100};

// How long init() waits before it says so.
constexpr std::chrono::seconds kPatience{10};

// MPI_Finalize waits for all processes. One that has died never comes.
constexpr std::chrono::seconds kFinalizePatience{10};

// The thread that initialises MPI and finalises it, as the standard wants. MPI may keep it in either call for
// ever, if another process does not come; so nobody joins it.
struct MainThread {
  std::mutex mu;
  std::condition_variable wake;
  bool finalize = false;  // guarded by mu
  std::promise<Status> initialized;
  std::promise<void> finalized;
};

// The one of this process, if it has initialised MPI. Never destroyed.
MainThread* main_thread = nullptr;
pid_t main_process = 0;

}  // namespace

Runtime::Turn::Turn(Runtime* runtime) : runtime_(runtime), lock_(runtime->mu_) {
  runtime_->turn_began_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

Runtime::Turn::Turn(Runtime* runtime, std::try_to_lock_t)
    : runtime_(runtime), lock_(runtime->mu_, std::try_to_lock) {
  if (!lock_.owns_lock()) return;
  runtime_->turn_began_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

Runtime::Turn::~Turn() {
  if (lock_.owns_lock()) runtime_->turn_began_.store(0, std::memory_order_relaxed);
}

Clock::duration Runtime::TurnLasts() const {
  const Clock::rep began = turn_began_.load(std::memory_order_relaxed);
  if (began == 0) return {};
  return Clock::now().time_since_epoch() - Clock::duration(began);
}

Status Runtime::Get(const Config& config, const std::string& prefix, Runtime** runtime) {
  static std::mutex mu;
  static Runtime* the = nullptr;
  std::lock_guard<std::mutex> lock(mu);
  if (the == nullptr) {
    std::unique_ptr<Runtime> opening(new Runtime);
    const Status status = opening->Open(config, prefix);
    if (!status.ok()) {
      return Internal("the ranks are on several hosts, which MPI joins, and " + status.message());
    }
    the = opening.release();
  }
  Status status = the->Initialize(config);
  if (status.ok()) status = the->CheckThreads();
  if (status.ok()) status = the->CheckWorld(config);
  if (status.ok()) *runtime = the;
  return status;
}

Status Runtime::Find(const Config& config, const std::string& prefix, std::string* description) {
  Runtime finding;
  Status status = finding.Open(config, prefix);
  if (status.ok()) *description = finding.library_->description();
  return status;
}

Status Runtime::Open(const Config& config, const std::string& prefix) {
  std::string tried;
  for (const std::string& file : FilesToTry(config, prefix)) {
    Status status;
    library_ = Library::Open(file, &status);
    if (library_ != nullptr) status = CheckKind(config);
    if (status.ok()) return {};
    tried += (tried.empty() ? "" : "; ") + status.message();
  }
  return Internal("no MPI library can be opened: " + tried +
                  ". Install the one whose mpirun or srun starts the job, or set SMDDP_MPI_LIBRARY to the "
                  "path of its libmpi.so");
}

// Under another family's launcher, MPI_Init_thread ends the process, or makes it rank 0 of 1.
Status Runtime::CheckKind(const Config& config) const {
  if (config.mpi_kind == MpiKind::kUnknown || !config.mpi_kind_is_sure) return {};
  if (library_->IsOpenMpi() == (config.mpi_kind == MpiKind::kOpenMpi)) return {};
  if (config.process_manager.host.empty()) {
    return Internal(library_->description() + " is not the library of " + config.launcher);
  }
  return Internal(library_->description() + " is not of MPICH's family, which jobs of " + config.launcher +
                  " need over several hosts (pip install mpich)");
}

Status Runtime::Initialize(const Config& config) {
  if (stuck_) return Internal("a call of MPI has not returned in an earlier call of tf_smddp.init()");
  std::lock_guard<std::mutex> lock(mu_);
  if (library_->Finalized()) {
    return FailedPrecondition(
        "the program has called MPI_Finalize, and MPI cannot be initialised twice: call "
        "tf_smddp.shutdown() first");
  }
  if (library_->Initialized()) return {};
  main_process = ::getpid();
  main_thread = new MainThread;
  std::future<Status> initialized = main_thread->initialized.get_future();
  try {
    // While it initialises MPI, this thread has mu_.
    StartThread("smddp-mpi-main", [this] {
      main_thread->initialized.set_value(library_->Initialize());
      std::unique_lock<std::mutex> waiting(main_thread->mu);
      main_thread->wake.wait(waiting, [] { return main_thread->finalize; });
      std::lock_guard<std::mutex> lock(mu_);
      closed_ = true;
      library_->Finalize();
      main_thread->finalized.set_value();
    }).detach();
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  const std::chrono::milliseconds limit = std::chrono::seconds(config.bootstrap_timeout_seconds);
  const std::chrono::milliseconds patience = std::min<std::chrono::milliseconds>(kPatience, limit / 2);
  const std::string here = "rank " + std::to_string(config.rank) + " on host " + HostName();
  if (initialized.wait_for(patience) != std::future_status::ready) {
    const Logger logger(static_cast<LogLevel>(config.log_level), config.rank);
    logger.Log(LogLevel::kWarning,
               "init() on " + here +
                   " waits in MPI_Init_thread for the other ranks. Each rank that waits "
                   "writes this line: a rank without one has not called tf_smddp.init() yet, "
                   "or only now");
  }
  if (initialized.wait_for(limit - patience) != std::future_status::ready) {
    stuck_ = true;
    return Internal("MPI_Init_thread of " + library_->description() + " has not returned within " +
                    std::to_string(config.bootstrap_timeout_seconds) + " s (SMDDP_BOOTSTRAP_TIMEOUT) for " +
                    here +
                    ": a rank without this error has not called tf_smddp.init(), or the hosts "
                    "cannot reach each other");
  }
  const Status status = initialized.get();
  if (status.ok()) std::atexit(&FinalizeAtExit);
  return status;
}

void Runtime::FinalizeAtExit() {
  if (::getpid() != main_process) return;  // a forked child
  std::future<void> finalized = main_thread->finalized.get_future();
  {
    std::lock_guard<std::mutex> lock(main_thread->mu);
    main_thread->finalize = true;
    main_thread->wake.notify_all();
  }
  finalized.wait_for(kFinalizePatience);
}

Status Runtime::CheckThreads() {
  std::lock_guard<std::mutex> lock(mu_);
  const ThreadLevel level = library_->Threads();
  // Our lock does not hold back the program's own calls of MPI.
  const bool ours = main_thread != nullptr;
  if (level == ThreadLevel::kMultiple || (ours && level == ThreadLevel::kSerialized)) return {};
  if (ours) {
    return FailedPrecondition(library_->description() +
                              " was built without support for threads (MPI_THREAD_SERIALIZED); use another "
                              "MPI");
  }
  return FailedPrecondition(
      "the program has initialised MPI for too few threads, and tf_smddp calls it from threads of its own: "
      "call MPI_Init_thread with MPI_THREAD_MULTIPLE, which is what mpi4py does by default, or call "
      "tf_smddp.init() first");
}

Status Runtime::CheckWorld(const Config& config) {
  std::lock_guard<std::mutex> lock(mu_);
  int rank = -1, size = 0;
  const Status status = library_->World(&rank, &size);
  if (!status.ok() || (rank == config.rank && size == config.size)) return status;
  const std::string difference = "MPI says that this is rank " + std::to_string(rank) + " of " +
                                 std::to_string(size) + ", and " + config.launcher + " that it is rank " +
                                 std::to_string(config.rank) + " of " + std::to_string(config.size) + ". ";
  if (!config.process_manager.host.empty()) {
    return InvalidArgument(difference +
                           "Here MPI knows the ranks only if tf_smddp.init() initialises it: call it before "
                           "mpi4py.MPI is imported");
  }
  return InvalidArgument(difference + library_->description() +
                         " is probably not the launcher's own library: start the job with the mpirun or "
                         "mpiexec of that MPI, or set SMDDP_MPI_LIBRARY to the path of the launcher's "
                         "libmpi.so");
}

Status Runtime::Await(Handle* request, Clock::time_point deadline, const std::string& what) {
  for (;;) {
    bool done = false;
    {
      const Turn turn(this);
      const Status status = library_->Test(request, &done);
      if (!status.ok() || done) return status;
    }
    if (Clock::now() > deadline) {
      return Internal(what +
                      " has not ended in time (SMDDP_BOOTSTRAP_TIMEOUT): not all ranks have called "
                      "tf_smddp.init(), or the hosts cannot reach each other");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace tf_smddp::mpi
