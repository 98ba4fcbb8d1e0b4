// Library: the functions of MPI that we call, found at run time, of whichever MPI the launcher brings.
//
// Place in the stack: the bottom of this folder. Nothing links MPI, and no header of MPI is needed to build.
// There are three binary interfaces, and one library of ours calls all of them (abi.h): that of Open MPI,
// that of MPICH, which Intel MPI and MVAPICH have, too, and the standard one of MPI 5.
//
// One thread at a time may call any of this (runtime.h has the lock).
#ifndef TF_SMDDP_KERNELS_MPI_LIBRARY_H_
#define TF_SMDDP_KERNELS_MPI_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/status.h"

namespace tf_smddp::mpi {

// One of MPI's handles: a pointer, or an int, by the interface.
struct Handle {
  std::uint64_t bits = 0;
};

// How many threads may call MPI.
enum class ThreadLevel { kLess, kSerialized, kMultiple };

class Library {
 public:
  // Opens the library at `path`, which the system finds if it is a name without a folder, and finds out which
  // interface it has. It stays open for as long as the process runs. nullptr if it cannot be used, and then
  // *status says why. Errors: Internal.
  static std::unique_ptr<Library> Open(const std::string& path, Status* status);

  virtual ~Library() = default;

  // Whether this is Open MPI; otherwise it is of MPICH's family.
  virtual bool IsOpenMpi() const = 0;

  // "Open MPI v4.1.4 (/usr/lib/x86_64-linux-gnu/libmpi.so.40)". Set by Open.
  const std::string& description() const { return description_; }

  // Whether MPI has been initialised in this process, and whether it has been finalised.
  virtual bool Initialized() = 0;
  virtual bool Finalized() = 0;
  // Initialises MPI for calls of one thread at a time. It may wait for all processes.
  virtual Status Initialize() = 0;
  virtual ThreadLevel Threads() = 0;
  virtual Status Finalize() = 0;

  // This process among all that were started together.
  virtual Status World(int* rank, int* size) = 0;

  // The rest are calls on a communicator of ours, which is a copy of the world's. None of them waits, and
  // their errors are returned. Each sets *request, which Test asks for its end.
  virtual Status DuplicateWorld(Handle* communicator, Handle* request) = 0;
  // Makes errors on `communicator` returned ones; when the duplicate is there.
  virtual Status ReturnErrors(Handle communicator) = 0;
  // Gathers `bytes` of each rank into *all, in order of rank.
  virtual Status AllGather(Handle communicator, const void* own, int bytes, void* all, Handle* request) = 0;
  virtual Status Send(Handle communicator, const void* data, int bytes, int to, int tag, Handle* request) = 0;
  virtual Status Receive(Handle communicator, void* data, int bytes, int from, int tag, Handle* request) = 0;
  // Sets *done, whether the request has ended; then it is of no more use.
  virtual Status Test(Handle* request, bool* done) = 0;
  // Sets *ended to those of the requests that have ended, which are of no more use. MPI looks at the network
  // once for all of them, and once for each call of Test.
  struct Ended {
    std::size_t index;
    Status status;
  };
  virtual Status TestSome(const std::vector<Handle>& requests, std::vector<Ended>* ended) = 0;
  // Sets *there, whether a message with this tag has come, and then by whom and of how many bytes. It is the
  // next one that Receive takes.
  virtual Status Probe(Handle communicator, int tag, bool* there, int* from, int* bytes) = 0;

 protected:
  std::string description_;
};

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_LIBRARY_H_
