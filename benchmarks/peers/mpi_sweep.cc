// MPI_Allreduce, measured like the engine. open_mpi.py and mpich.py build it with the compiler wrapper of
// each MPI.
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "benchmarks/cpp/contestant.h"
#include "benchmarks/cpp/options.h"
#include "benchmarks/cpp/sweep.h"

namespace tf_smddp::benchmarks {
namespace {

class Mpi final : public Contestant {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  const char* name() const override { return "MPI_Allreduce"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* Allocate(std::size_t count) override {
    return static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
  }
  void Free(float* data, std::size_t) override { std::free(data); }
  void Allreduce(const std::vector<Tensor>& tensors) override {
    for (const Tensor& tensor : tensors) {
      // No error check: an error of MPI ends the job.
      MPI_Allreduce(tensor.input == tensor.output ? MPI_IN_PLACE : tensor.input, tensor.output,
                    static_cast<int>(tensor.count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
  }
  void Barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double Max(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace
}  // namespace tf_smddp::benchmarks

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto options = tf_smddp::benchmarks::ParseOptions(argc, argv);
  ::alarm(static_cast<unsigned>(options.time_limit_seconds));
  tf_smddp::benchmarks::Mpi contestant;
  tf_smddp::benchmarks::RunSweep(contestant, options);
  MPI_Finalize();
  return 0;
}
