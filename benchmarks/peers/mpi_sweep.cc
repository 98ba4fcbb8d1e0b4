// MPI_Allreduce, measured like the engine. open_mpi.py and mpich.py build it with the compiler wrapper of
// each MPI.
#include <mpi.h>

#include <vector>

#include "benchmarks/peers/mpi_contestant.h"

namespace tf_smddp::benchmarks {
namespace {

class Mpi final : public MpiContestant {
 public:
  const char* name() const override { return "MPI_Allreduce"; }
  void Allreduce(const std::vector<Tensor>& tensors) override {
    for (const Tensor& tensor : tensors) {
      MPI_Allreduce(tensor.input == tensor.output ? MPI_IN_PLACE : tensor.input, tensor.output,
                    static_cast<int>(tensor.count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
  }
};

}  // namespace
}  // namespace tf_smddp::benchmarks

int main(int argc, char** argv) {
  return tf_smddp::benchmarks::RunMpiSweep<tf_smddp::benchmarks::Mpi>(argc, argv);
}
