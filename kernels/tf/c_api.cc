// The C entry points that the Python package calls through ctypes.
//
// Place in the stack: beside the kernels. Each returns at once or blocks as its engine call does; ctypes lets
// other Python threads run meanwhile.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/tf/global_engine.h"

#define TF_SMDDP_QUOTE_(text) #text
#define TF_SMDDP_QUOTE(text) TF_SMDDP_QUOTE_(text)

namespace {

using ::tf_smddp::Config;
using ::tf_smddp::Engine;
using ::tf_smddp::Status;

// 0 for OK. Else 1, with the message, cut to fit, in `error`.
int Report(const Status& status, char* error, std::size_t error_bytes) {
  if (status.ok()) return 0;
  if (error_bytes > 0) {
    const std::size_t bytes = std::min(status.message().size(), error_bytes - 1);
    std::memcpy(error, status.message().data(), bytes);
    error[bytes] = '\0';
  }
  return 1;
}

// -1 before init().
int ConfigValue(int Config::* member) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  return engine == nullptr ? -1 : engine->config().*member;
}

}  // namespace

extern "C" {

#define TF_SMDDP_EXPORT __attribute__((visibility("default")))

// The TensorFlow version that this library was compiled for.
TF_SMDDP_EXPORT const char* tf_smddp_built_against() { return TF_SMDDP_QUOTE(TF_SMDDP_TF_VERSION); }

TF_SMDDP_EXPORT int tf_smddp_init(char* error, std::size_t error_bytes) {
  return Report(::tf_smddp::StartGlobalEngine(), error, error_bytes);
}

TF_SMDDP_EXPORT int tf_smddp_shutdown(char* error, std::size_t error_bytes) {
  return Report(::tf_smddp::StopGlobalEngine(), error, error_bytes);
}

TF_SMDDP_EXPORT int tf_smddp_is_initialized() { return ::tf_smddp::GlobalEngine() != nullptr ? 1 : 0; }

TF_SMDDP_EXPORT int tf_smddp_rank() { return ConfigValue(&Config::rank); }
TF_SMDDP_EXPORT int tf_smddp_size() { return ConfigValue(&Config::size); }
TF_SMDDP_EXPORT int tf_smddp_local_rank() { return ConfigValue(&Config::local_rank); }
TF_SMDDP_EXPORT int tf_smddp_local_size() { return ConfigValue(&Config::local_size); }

}  // extern "C"
