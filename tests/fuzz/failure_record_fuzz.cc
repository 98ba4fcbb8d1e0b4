// libFuzzer: the records in shared memory that say why a step, or the job, has failed, with any bytes in
// them. Their texts are as long as the memory at most; what is raised in one that runs is read back.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "kernels/common/utf8.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/failure_record.h"
#include "tests/fuzz/input.h"

namespace tf_smddp {
namespace {

constexpr std::size_t kTextBytes = 4096;

// A record of any bytes, with nothing behind it that may be read.
template <typename Record>
class Memory {
 public:
  explicit Memory(Input* input) : bytes_(::operator new(sizeof(Record), std::align_val_t{alignof(Record)})) {
    input->Fill(bytes_, sizeof(Record));
  }
  ~Memory() { ::operator delete(bytes_, std::align_val_t{alignof(Record)}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Record& record() { return *static_cast<Record*>(bytes_); }

 private:
  void* const bytes_;
};

bool IsCopyOf(const std::string& copy, const std::string& text) {
  const std::string before_zero(text.c_str());
  return copy == std::string(Utf8Prefix(text, kTextBytes - 1)).c_str() && before_zero.size() >= copy.size();
}

void TryFailure(Input* input) {
  const auto incarnation = input->Take<std::uint64_t>() >> 8;
  const auto origin = input->Take<std::uint64_t>();
  const int last = static_cast<int>(input->Below(4)) - 1;
  const std::string text = input->Text();
  Memory<FailureRecord> memory(input);
  FailureRecord& record = memory.record();
  if (input->Below(2) == 0) record.Restart(incarnation - 1);

  const FailureRecord::State state = record.StateOf(incarnation);
  Require((state == FailureRecord::State::kRuns) == !record.Failed(incarnation));
  Require(record.Text().size() < kTextBytes);
  Require(record.Knows(record.Origin()));
  const bool raised = record.Raise(incarnation, origin, text, RankId(last));
  Require(raised == (state == FailureRecord::State::kRuns));
  if (!raised) {
    Require(record.StateOf(incarnation) == state);
    return;
  }
  Require(record.StateOf(incarnation) == FailureRecord::State::kFailed && record.IsBroken(incarnation));
  Require(IsCopyOf(record.Text(), text));
  Require(record.Origin() == origin && record.Knows(origin));
  Require(record.LastToLeave() == RankId(last));
  Require(!record.Raise(incarnation, origin + 1, "another", RankId()));

  const MemberMask members = MemberMask::FirstN(3);
  for (int member = 0; member < 3; ++member) record.Drained(member);
  Require(record.TryRestart(incarnation, members) && !record.TryRestart(incarnation, members));
  record.Restart(incarnation);
  Require(record.StateOf(incarnation + 1) == FailureRecord::State::kRuns && record.DrainedMask() == 0);
}

void TryAbort(Input* input) {
  const std::string text = input->Text();
  Memory<AbortRecord> memory(input);
  AbortRecord& record = memory.record();
  std::uint32_t state;
  std::memcpy(&state, static_cast<void*>(&record), sizeof state);
  if (state == 1) return;  // a writer that has died: Text waits for 0.2 s
  const bool was_raised = record.raised();
  Require(record.Raise(text) == !was_raised && record.raised());
  const std::string found = record.Text();
  Require(found.size() < kTextBytes);
  if (!was_raised) Require(IsCopyOf(found, text));
}

}  // namespace
}  // namespace tf_smddp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tf_smddp::Input input(data, size);
  tf_smddp::TryAbort(&input);
  tf_smddp::TryFailure(&input);
  return 0;
}
