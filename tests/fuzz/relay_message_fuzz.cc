// libFuzzer: Decode of what comes over the wire takes any bytes, and reads back what Encode makes of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernels/control/relay_message.h"

namespace {

struct Receiver {
  tf_smddp::Descriptions descriptions;
  tf_smddp::KnownNumbers known;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Receiver first, second;
  tf_smddp::Decode(bytes, &first.descriptions, &first.known, [&](const tf_smddp::RelayMessage& message) {
    const std::string written = tf_smddp::Encode({message});
    std::string again;
    const auto write = [&](const tf_smddp::RelayMessage& read) { again += tf_smddp::Encode({read}); };
    if (!tf_smddp::Decode(written, &second.descriptions, &second.known, write) || again != written) {
      std::abort();
    }
  });
  return 0;
}
