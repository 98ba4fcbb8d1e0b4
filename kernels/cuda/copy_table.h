// CopyTable: the argument of the kernels that copy (copies.cu). C++ and CUDA C++ include it, so it includes
// nothing.
#ifndef TF_SMDDP_KERNELS_CUDA_COPY_TABLE_H_
#define TF_SMDDP_KERNELS_CUDA_COPY_TABLE_H_

namespace tf_smddp::cuda {

struct CopyRow {
  void* to;
  const void* from;
  unsigned long long count;  // of bytes, or of elements that are converted
};

// A kernel's arguments have 4 KiB.
struct CopyTable {
  static constexpr int kRows = 128;
  CopyRow rows[kRows];
};

constexpr unsigned kCopyThreads = 256;           // of a block
constexpr unsigned long long kCopyTile = 16384;  // bytes, or elements, that a block copies

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_COPY_TABLE_H_
