// Ranks as processes that use the C API, as a program that smddprun has started.
#ifndef TF_SMDDP_TESTS_CPP_PROCESS_C_RANKS_H_
#define TF_SMDDP_TESTS_CPP_PROCESS_C_RANKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/process/smddp.h"

namespace tf_smddp::testing {

// Runs `body` in `size` processes, between smddp_init and smddp_shutdown; a failed expectation in one of them
// fails the test. Each has 60 s. `orderly`: smddp_shutdown succeeds.
void RunCRanks(int size, const std::function<void(int rank)>& body, bool orderly = true);

// A request on flat host memory, which stays with the caller.
template <typename Element>
smddp_request CRequest(smddp_collective collective, smddp_dtype dtype, const std::vector<int64_t>& shape,
                       const std::vector<Element>& input, std::vector<Element>* output) {
  smddp_request request;
  smddp_request_init(&request, sizeof request);
  request.collective = collective;
  request.dtype = dtype;
  request.shape = shape.data();
  request.num_dims = static_cast<int32_t>(shape.size());
  request.input.data = const_cast<Element*>(input.data());
  request.input.bytes = input.size() * sizeof(Element);
  request.output.data = output->data();
  request.output.bytes = output->size() * sizeof(Element);
  return request;
}

// Expects SMDDP_SUCCESS, or shows the error.
inline void ExpectSuccess(smddp_result result) { EXPECT_EQ(result, SMDDP_SUCCESS) << smddp_last_error(); }

// Expects an error whose text has `part` in it.
inline void ExpectError(smddp_result result, smddp_result expected, const std::string& part) {
  EXPECT_EQ(result, expected);
  EXPECT_NE(std::string(smddp_last_error()).find(part), std::string::npos) << smddp_last_error();
}

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_PROCESS_C_RANKS_H_
