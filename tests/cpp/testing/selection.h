// A pairwise selection of collective × type × op × factors × count × pattern × layout × way to be submitted.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_SELECTION_H_
#define TF_SMDDP_TESTS_CPP_TESTING_SELECTION_H_

#include <vector>

#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {

// The trials of a size; every third or so is alone, the others are grouped.
struct Selection {
  std::vector<Trial> grouped;
  std::vector<Trial> alone;
};

// Returns the selection for `size` ranks; the same on every call.
Selection Select(int size);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_SELECTION_H_
