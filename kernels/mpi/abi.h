// The three binary interfaces of MPI: what their handles are, and the values of the constants that we use.
//
// Place in the stack: inside library.cc. The values are those of the libraries' public headers: mpi.h of Open
// MPI 4 and 5, mpi.h of MPICH 3.1 to 5 (the interface that MPICH, Intel MPI, MVAPICH and others have agreed
// on: https://www.mpich.org/abi), and mpi_abi.h of the MPI 5.0 standard, chapter "Application Binary
// Interface".
#ifndef TF_SMDDP_KERNELS_MPI_ABI_H_
#define TF_SMDDP_KERNELS_MPI_ABI_H_

#include <cstddef>
#include <cstdint>

namespace tf_smddp::mpi {

// Handles are the addresses of objects that the library exports.
struct OpenMpiAbi {
  using RawHandle = void*;
  struct MessageStatus {
    int source, tag, error, cancelled;
    std::size_t count;
  };
  static constexpr int kAnySource = -1;
  static constexpr int kSerialized = 2, kMultiple = 3;
  static constexpr const char *kWorld = "ompi_mpi_comm_world", *kByte = "ompi_mpi_byte",
                              *kErrorsReturn = "ompi_mpi_errors_return";
};

struct MpichAbi {
  using RawHandle = int;
  struct MessageStatus {
    int count_low, count_high, source, tag, error;
  };
  static constexpr int kAnySource = -2;
  static constexpr int kSerialized = 2, kMultiple = 3;
  static constexpr std::uint64_t kWorld = 0x44000000, kByte = 0x4c00010d, kErrorsReturn = 0x54000001;
};

struct StandardAbi {
  using RawHandle = void*;
  struct MessageStatus {
    int source, tag, error, internal[5];
  };
  static constexpr int kAnySource = -1;
  static constexpr int kSerialized = 2048, kMultiple = 4096;
  static constexpr std::uint64_t kWorld = 0x101, kByte = 0x247, kErrorsReturn = 0x143;
};

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_ABI_H_
