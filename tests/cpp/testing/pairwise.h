// Pairwise selection: a few rows that cover every pair of values of every two axes.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_PAIRWISE_H_
#define TF_SMDDP_TESTS_CPP_TESTING_PAIRWISE_H_

#include <vector>

namespace tf_smddp::testing {

// `axes` are the numbers of values of each axis. A row has a value for each axis, from 0. The same on every
// call.
std::vector<std::vector<int>> Pairwise(const std::vector<int>& axes);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_PAIRWISE_H_
