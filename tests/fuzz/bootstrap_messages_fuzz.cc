// libFuzzer: what another process sends during init() may be anything. A hello is accepted if, and only if,
// it says what rank 0 says and has a rank of its own. A status gives a status, and one that was sent comes
// back.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/control/bootstrap_messages.h"
#include "tests/fuzz/input.h"

namespace tf_smddp {
namespace {

void TryHello(Input* input) {
  const auto ours = input->Take<Hello>();
  // Mostly, a hello is rank 0's but for one member.
  Hello theirs = ours;
  theirs.magic = kHelloMagic;
  theirs.rank = input->Take<std::int32_t>();
  if (input->Below(2) == 0) {
    const std::size_t at = input->Below(sizeof theirs / sizeof(std::int32_t)) * sizeof(std::int32_t);
    input->Fill(reinterpret_cast<char*>(&theirs) + at, sizeof(std::int32_t));
  } else if (input->Below(8) == 0) {
    theirs = input->Take<Hello>();
  }
  const bool same = theirs.magic == kHelloMagic && theirs.size == ours.size && theirs.rank >= 1 &&
                    theirs.rank < ours.size && theirs.bucket_cap_bytes == ours.bucket_cap_bytes &&
                    theirs.small_bytes == ours.small_bytes && theirs.chunk_bytes == ours.chunk_bytes &&
                    theirs.table_slots == ours.table_slots && theirs.deterministic == ours.deterministic;
  const Status status = CheckHello(theirs, ours);
  Require(status.ok() == same);
  Require(status.ok() || !status.message().empty());
}

void TryStatus(Input* input) {
  const auto received = input->Take<StatusMessage>();
  const Status status = StatusOf(received);
  Require(status.ok() == (received.ok != 0));
  if (status.ok()) return;
  Require(status.message().size() <= sizeof received.text);
  // It is sent on, as an error of another rank is: what fits comes back as it was.
  const StatusMessage sent = MakeStatusMessage(status);
  Require(std::memchr(sent.text, 0, sizeof sent.text) != nullptr);
  const std::string text = StatusOf(sent).message();
  Require(status.message().compare(0, text.size(), text) == 0);
  Require(text.size() == status.message().size() || text.size() + 4 >= sizeof sent.text);
}

}  // namespace
}  // namespace tf_smddp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tf_smddp::Input input(data, size);
  tf_smddp::TryHello(&input);
  tf_smddp::TryStatus(&input);
  return 0;
}
