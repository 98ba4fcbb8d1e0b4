// Status: the outcome of an operation, with a message for a person.
//
// Place in the stack: the bottom. kernels/tf turns it into TensorFlow's own. The codes are few on
// purpose: TensorFlow's loops take Aborted, Unavailable, Cancelled and OutOfRange for preemption or the
// end of the data and retry for ever, so none of those exists here.
#ifndef TF_SMDDP_KERNELS_COMMON_STATUS_H_
#define TF_SMDDP_KERNELS_COMMON_STATUS_H_

#include <string>
#include <utility>

namespace tf_smddp {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // the caller passed something that can never work
  kFailedPrecondition,  // not initialized, shut down, called in a forked child
  kInternal,            // the job failed: a peer died, ranks disagree, the system refused
};

class Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_STATUS_H_
