// libFuzzer: Decode of what comes over the wire takes any bytes, and reads back what Encode makes of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/control/relay_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::vector<tf_smddp::RelayMessage> messages, again;
  if (!tf_smddp::Decode(bytes, &messages)) return 0;
  const std::string written = tf_smddp::Encode(messages);
  if (!tf_smddp::Decode(written, &again) || tf_smddp::Encode(again) != written) std::abort();
  return 0;
}
