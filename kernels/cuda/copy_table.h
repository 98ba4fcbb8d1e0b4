// CopyTable: the argument of the kernel that copies (copies.cu). C++ and CUDA C++ include it, so it includes
// nothing.
#ifndef TF_SMDDP_KERNELS_CUDA_COPY_TABLE_H_
#define TF_SMDDP_KERNELS_CUDA_COPY_TABLE_H_

namespace tf_smddp::cuda {

struct Copy {
  void* to;
  const void* from;
  unsigned long long bytes;
};

// A kernel's arguments have 4 KiB.
struct CopyTable {
  static constexpr int kCopies = 128;
  Copy copies[kCopies];
};

constexpr unsigned kCopyThreads = 256;           // of a block
constexpr unsigned long long kCopyTile = 16384;  // bytes that a block copies

}  // namespace tf_smddp::cuda

#endif  // TF_SMDDP_KERNELS_CUDA_COPY_TABLE_H_
