// libFuzzer: what a rank publishes for the messages of others, with any bytes in it: the search for its last
// submission ends, and describing what it finds gives a text.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "kernels/control/progress_record.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tf_smddp::ProgressRecord;
  tf_smddp::Input input(data, size);
  const auto submissions = input.Below(8);
  const auto manifest = input.Take<tf_smddp::Manifest>();
  void* const memory = ::operator new(sizeof(ProgressRecord));
  input.Fill(memory, sizeof(ProgressRecord));
  auto& record = *static_cast<ProgressRecord*>(memory);
  ProgressRecord::Submission last;
  if (record.Last(&last)) tf_smddp::Require(!tf_smddp::DescribeManifest(last.manifest).empty());
  for (unsigned i = 0; i < submissions; ++i) {
    record.Submitted({i, 7, manifest});
    tf_smddp::Require(record.Last(&last) || record.submitted() == 0);
    if (record.submitted() == 0) continue;  // the number has come round
    tf_smddp::Require(last.communicator == i && last.when_ns == 7);
    tf_smddp::Require(tf_smddp::SameManifest(last.manifest, manifest) ||
                      !tf_smddp::SameManifest(manifest, manifest));  // a factor is NaN
    tf_smddp::Require(!tf_smddp::DescribeManifest(last.manifest).empty());
  }
  ::operator delete(memory);
  return 0;
}
