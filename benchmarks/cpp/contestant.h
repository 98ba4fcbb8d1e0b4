// Contestant: one rank of an implementation of allreduce: the engine, MPI or Gloo; or of what limits it.
//
// Place in the stack: below sweep.h, which measures all of them in the same way. It needs the C++ library
// only, so that the compiler wrapper of an MPI can build it.
#ifndef TF_SMDDP_BENCHMARKS_CPP_CONTESTANT_H_
#define TF_SMDDP_BENCHMARKS_CPP_CONTESTANT_H_

#include <cstddef>
#include <vector>

namespace tf_smddp::benchmarks {

struct Tensor {
  const float* input = nullptr;
  float* output = nullptr;  // may be equal to `input` (in place)
  std::size_t count = 0;
};

// All methods are called on one thread. Any failure ends the process.
class Contestant {
 public:
  virtual ~Contestant() = default;

  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // False for one that moves the bytes of an allreduce, but leaves the outputs as they are.
  virtual bool sums() const { return true; }

  // Returns memory for a tensor that this implementation can reduce fastest, aligned to 64 bytes. Its content
  // is undefined.
  virtual float* Allocate(std::size_t count) = 0;
  virtual void Free(float* data, std::size_t count) = 0;

  // Sums each tensor over all ranks, in float32. Returns when this rank's outputs hold the results.
  virtual void Allreduce(const std::vector<Tensor>& tensors) = 0;

  // Returns when all ranks have called it. Its time is not measured.
  virtual void Barrier() = 0;

  // Returns the largest of all ranks' values, on all ranks. Its time is not measured.
  virtual double Max(double value) = 0;
};

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_CPP_CONTESTANT_H_
