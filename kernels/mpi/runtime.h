// Runtime: MPI in this process.
//
// Place in the stack: above library.h; wires use it. There is one for each process, since a process can
// initialise MPI once. If the program has not initialised it (mpi4py does), this does, and finalises it when
// the process exits.
#ifndef TF_SMDDP_KERNELS_MPI_RUNTIME_H_
#define TF_SMDDP_KERNELS_MPI_RUNTIME_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/common/clock.h"
#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/mpi/library.h"

namespace tf_smddp::mpi {

class Runtime {
 public:
  // Opens and initialises MPI, unless that has been done. It lives as long as the process. `prefix`: see
  // FilesToTry. Errors: Internal (no library, MPI's own errors, other processes do not come in time),
  // FailedPrecondition (the program has finalised MPI, or initialised it for less threads than it needs),
  // InvalidArgument (MPI and the launcher do not agree on this process's rank).
  static Status Get(const Config& config, const std::string& prefix, Runtime** runtime);

  // Sets *description to the version and the path of the library that Get would open. It initialises nothing.
  // Errors: Internal (no library).
  static Status Find(const Config& config, const std::string& prefix, std::string* description);

  // The right to call MPI, which one thread has at a time.
  class Turn {
   public:
    // Waits until no other thread has it.
    explicit Turn(Runtime* runtime);
    // Does not wait: it may not have it.
    Turn(Runtime* runtime, std::try_to_lock_t);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

    explicit operator bool() const { return lock_.owns_lock(); }

    // For the thread that has the turn: MPI's functions, to which there is no other way once MPI is
    // initialised. So one thread at a time is in MPI.
    Library& library() const { return *runtime_->library_; }
    // For the same thread: whether MPI must not be called any more, since the process exits.
    bool closed() const { return runtime_->closed_; }

   private:
    Runtime* const runtime_;
    std::unique_lock<std::mutex> lock_;
  };

  // Returns for how long the thread whose turn it is has had it; 0 while it is nobody's. Any thread.
  Clock::duration TurnLasts() const;

  // A call of MPI does not return: it is not initialised again.
  void GiveUp() { stuck_ = true; }

  // The communicator of the last wire of this process. Use: there is one, which a wire uses now. Keep: it
  // ended in order. Kept: false if there was none; *usable, whether it ended in order. In a turn, or in
  // init().
  void Use(Handle communicator) {
    last_ = communicator;
    kept_ = false;
  }
  void Keep(Handle communicator) { kept_ = last_.has_value() && last_->bits == communicator.bits; }
  bool Kept(Handle* communicator, bool* usable) const {
    if (!last_) return false;
    *communicator = *last_;
    *usable = kept_;
    return true;
  }

  // Names the MPI that is in use: its version, and the path of the library.
  std::string description() const { return library_->description(); }

  // Calls Test until the request has ended. Errors: also Internal, after `deadline`. Not in a turn.
  Status Await(Handle* request, Clock::time_point deadline, const std::string& what);

 private:
  Runtime() = default;
  Status Open(const Config& config, const std::string& prefix);
  Status CheckKind(const Config& config) const;
  Status Initialize(const Config& config);
  Status CheckThreads();
  Status CheckWorld(const Config& config);
  static void FinalizeAtExit();

  std::unique_ptr<Library> library_;
  bool stuck_ = false;  // a thread is in a call of MPI for good; init() reads and sets it
  std::optional<Handle> last_;
  bool kept_ = false;                      // last_ ended in order
  std::mutex mu_;                          // held in a turn
  std::atomic<Clock::rep> turn_began_{0};  // 0: it is nobody's
  bool closed_ = false;                    // guarded by mu_
};

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_RUNTIME_H_
