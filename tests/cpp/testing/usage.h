// Reads the resources of this process from /proc/self, so that tests can check that nothing grows or is left.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_USAGE_H_
#define TF_SMDDP_TESTS_CPP_TESTING_USAGE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_smddp::testing {

struct Usage {
  std::int64_t resident_bytes = 0;  // private and shared
  std::int64_t private_bytes = 0;   // of these, what belongs to no file and no memfd
  int descriptors = 0;
  int threads = 0;
  int shared_mappings = 0;  // memfds
};

Usage ReadUsage();

// The names of the threads of this process. A thread that has been joined may be in /proc for a while yet; it
// is not among them.
std::vector<std::string> ThreadNames();

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_USAGE_H_
