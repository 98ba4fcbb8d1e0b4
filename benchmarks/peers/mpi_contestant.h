// MpiContestant: what contestants have in common whose ranks MPI starts.
#ifndef TF_SMDDP_BENCHMARKS_PEERS_MPI_CONTESTANT_H_
#define TF_SMDDP_BENCHMARKS_PEERS_MPI_CONTESTANT_H_

#include <mpi.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "benchmarks/cpp/contestant.h"
#include "benchmarks/cpp/options.h"
#include "benchmarks/cpp/sweep.h"

namespace tf_smddp::benchmarks {

// No error checks: an error of MPI ends the job.
class MpiContestant : public Contestant {
 public:
  MpiContestant() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* Allocate(std::size_t count) override {
    return static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
  }
  void Free(float* data, std::size_t) override { std::free(data); }
  void Barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double Max(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }

 private:
  int rank_ = 0, size_ = 1;
};

// The main function of a program that measures such a contestant.
template <typename AnyContestant>
int RunMpiSweep(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const Options options = ParseOptions(argc, argv);
  ::alarm(static_cast<unsigned>(options.time_limit_seconds));
  {
    AnyContestant contestant;
    RunSweep(contestant, options);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_PEERS_MPI_CONTESTANT_H_
