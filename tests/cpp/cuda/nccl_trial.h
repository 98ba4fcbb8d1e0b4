// A trial (tests/cpp/testing/trial.h) of NCCL's calls.
#ifndef TF_SMDDP_TESTS_CPP_CUDA_NCCL_TRIAL_H_
#define TF_SMDDP_TESTS_CPP_CUDA_NCCL_TRIAL_H_

#include <cstddef>
#include <vector>

#include "kernels/collectives/collective.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {

// The trial as the data plane sees it.
Call CallOf(const Trial& trial, int num_ranks);

// Expects that the output of a rank is right: to the bit where nothing is rounded, and else within what the
// rounding of each step may add up to. Returns whether it is.
bool ExpectOutput(const Trial& trial, int num_ranks, int rank, const std::vector<std::byte>& output);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_CUDA_NCCL_TRIAL_H_
