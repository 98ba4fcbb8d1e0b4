// A library with the interface of MPICH in which this process is rank 0 of 1. It counts the communicators
// that are made, and its calls may be made not to return.
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

int Set(int* to, int value) {
  *to = value;
  return 0;
}

bool initialized = false;

}  // namespace

extern "C" {

int pretend_mpi_communicators = 0;
int pretend_mpi_is_stuck = 0;

int MPI_Initialized(int* flag) { return Set(flag, initialized ? 1 : 0); }
int MPI_Finalized(int* flag) { return Set(flag, 0); }
int MPI_Init_thread(int*, char***, int required, int* provided) {
  initialized = true;
  return Set(provided, required);
}
int MPI_Query_thread(int* provided) { return Set(provided, 3); }
int MPI_Finalize() { return 0; }
int MPI_Comm_rank(int, int* rank) { return Set(rank, 0); }
int MPI_Comm_size(int, int* size) { return Set(size, 1); }
int MPI_Comm_idup(int, int* communicator, int* request) {
  return Set(communicator, ++pretend_mpi_communicators) + Set(request, 1);
}
int MPI_Comm_set_errhandler(int, int) { return 0; }
int MPI_Iallgather(const void* own, int bytes, int, void* all, int, int, int, int* request) {
  std::memcpy(all, own, static_cast<std::size_t>(bytes));
  return Set(request, 1);
}
int MPI_Isend(const void*, int, int, int, int, int, int* request) { return Set(request, 1); }
int MPI_Irecv(void*, int, int, int, int, int, int* request) { return Set(request, 1); }
int MPI_Test(int*, int* flag, void*) {
  while (pretend_mpi_is_stuck != 0) ::sleep(1);
  return Set(flag, 1);
}
int MPI_Testsome(int number, int*, int* count, int* indices, void*) {
  for (int i = 0; i < number; ++i) indices[i] = i;
  return Set(count, number);
}
int MPI_Iprobe(int, int, int, int* flag, void*) { return Set(flag, 0); }
int MPI_Get_count(const void*, int, int* count) { return Set(count, 0); }
int MPI_Error_string(int, char* text, int* length) { return Set(length, std::sprintf(text, "an error")); }
int MPI_Get_library_version(char* text, int* length) {
  return Set(length, std::sprintf(text, "Pretend MPI 1.0"));
}

}  // extern "C"
