// libFuzzer: manifests are read from shared memory, so their bytes may be anything. Describing one gives a
// text, and comparing two gives the same answer in both orders.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/control/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tf_smddp::Manifest manifests[2] = {};
  std::memcpy(static_cast<void*>(manifests), data, size < sizeof manifests ? size : sizeof manifests);
  if (tf_smddp::DescribeManifest(manifests[0]).empty()) std::abort();
  if (tf_smddp::DescribeCause(manifests[0], manifests[1]).empty()) std::abort();
  const bool same = tf_smddp::SameManifest(manifests[0], manifests[1]);
  if (same != tf_smddp::SameManifest(manifests[1], manifests[0])) std::abort();
  return 0;
}
