// Status: the outcome of an operation, with a message for users.
//
// Place in the stack: the bottom. kernels/tf converts it into TensorFlow's absl::Status. There are few codes
// on purpose: TensorFlow's loops take Aborted, Unavailable, Cancelled and OutOfRange for preemption or for
// the end of the data, and retry for ever. So none of these exists here.
#ifndef TF_SMDDP_KERNELS_COMMON_STATUS_H_
#define TF_SMDDP_KERNELS_COMMON_STATUS_H_

#include <string>
#include <utility>

namespace tf_smddp {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // the caller's arguments can never work
  kFailedPrecondition,  // the engine is not initialized or has been shut down, or this is a forked child
  kInternal,            // something failed: a peer died, ranks disagree, or the system refused something
  kCorrupt,             // shared memory is damaged, so the job cannot go on
  kDeviceLost,          // a device of this rank is of no more use to this process, so the job cannot go on
  kNoMemoryNow,         // there is no memory at the moment; others may soon give some back
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
// An error of one step: FailedPrecondition, unless `cause` is that a device is lost.
inline Status ErrorOfStep(const Status& cause, std::string message) {
  const bool lost = cause.code() == StatusCode::kDeviceLost;
  return {lost ? StatusCode::kDeviceLost : StatusCode::kFailedPrecondition, std::move(message)};
}
inline Status Corrupt(std::string message) { return {StatusCode::kCorrupt, std::move(message)}; }
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_STATUS_H_
