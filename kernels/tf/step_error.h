// StepError: finds the error with which the step that an op belongs to is failing.
//
// Place in the stack: TensorFlow alone; nothing of the engine. TensorFlow tells a cancelled op that its step
// is over, but not why. The executor aborts the step's rendezvous with the first error, before it cancels
// anything; so a receive that nobody sends for is answered at once with that error, or, when the step was
// cancelled from outside, not at all.
#ifndef TF_SMDDP_KERNELS_TF_STEP_ERROR_H_
#define TF_SMDDP_KERNELS_TF_STEP_ERROR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"

namespace tf_smddp {

class StepError {
 public:
  // Keeps what it needs of `context`, which may go afterwards.
  explicit StepError(tensorflow::OpKernelContext* context);
  ~StepError();

  StepError(const StepError&) = delete;
  StepError& operator=(const StepError&) = delete;

  // Whether there is an answer at all: a function that tf.data runs has no rendezvous.
  bool CanAsk() const { return rendezvous_ != nullptr; }

  // Whether it may be asked after the step's end. Functions share the ownership of their rendezvous; a
  // session's lies on a stack.
  bool OutlivesStep() const { return owned_ != nullptr; }

  // The step's first error; OK when there is none yet. Any thread; while the step runs, unless it outlives
  // it.
  absl::Status Ask() const;

  // As Ask, to be called once. When there is no error yet, `later` is called if one comes before Withdraw, on
  // the thread that aborts the step.
  absl::Status AskAndWait(std::function<void(const absl::Status&)> later);

  // Ends the wait; false when `later` has been called, or is just being called.
  bool Withdraw();

 private:
  struct Answer;
  void Receive(const std::shared_ptr<Answer>& answer) const;

  tensorflow::RendezvousInterface* const rendezvous_;  // may be nullptr
  tensorflow::Rendezvous* const owned_;                // the same, when it has owners; nullptr otherwise
  const std::string device_;
  const std::uint64_t incarnation_;
  std::shared_ptr<Answer> waiting_;  // AskAndWait's
};

// The text about the step that the other ranks get: it "failed with <type>: <error>" or, for OK, "was
// cancelled".
std::string DescribeStepError(const absl::Status& error);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_STEP_ERROR_H_
