// Step: the call of a tf.function, or a session's run, that ops belong to. Tells the engine when it ends, and
// why it failed if it did.
//
// Place in the stack: between the op kernels and kernels/engine. Not here: requests that are under way when a
// step fails, which their ops withdraw (submission.h).
//
// TensorFlow's own step numbers will not do: an eager op has one too, each session counts from 1, and a
// nested function that is not inlined gets another. What all ops of a call share, and no two calls at once,
// is the cancellation manager.
//
// A step that has taken part in a collective and then fails, wherever it is, has left some undone, or has
// lost their results. The other ranks must hear of it, or they would wait for it, or take its repetition for
// something else. The one exception is the end of the data, which comes to all ranks alike and is no failure.
#ifndef TF_SMDDP_KERNELS_TF_STEP_H_
#define TF_SMDDP_KERNELS_TF_STEP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/engine.h"
#include "kernels/engine/request.h"
#include "kernels/tf/step_error.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_smddp {

class Step : public std::enable_shared_from_this<Step> {
 public:
  // The step of an op that runs now; of no number and without an end when it runs eagerly. Any thread.
  static std::shared_ptr<Step> Of(tensorflow::OpKernelContext* context, const std::shared_ptr<Engine>& engine,
                                  bool eager);

  // Lets go of what steps that have ended still hold. After the engine's end.
  static void ForgetAll();

  StepId number() const { return number_; }

  // Whether the step has failed or was cancelled. Any thread, while the step's op runs.
  bool Cancelled() const;

  // The step takes part in collectives of `communicator`, and is to be told of if it fails. False when it is
  // over already. Any thread.
  bool Join(CommunicatorId communicator);

  // The step has drawn `ticket`. Any thread.
  void Drew(CommunicatorId communicator, std::uint64_t ticket);

  // The engine itself has failed a part of the step in `communicator`: it need not be told. Any thread.
  void FailedIn(CommunicatorId communicator);

 private:
  // What a step has done in one communicator.
  struct Share {
    std::vector<std::uint64_t> tickets;
    bool failed_in_engine = false;
  };
  // A step that is over, while it is not certain yet whether it has failed.
  struct Ended;
  struct Registry;

  Step(StepId number, tensorflow::CancellationManager* manager, std::shared_ptr<Engine> engine)
      : number_(number), manager_(manager), engine_(std::move(engine)) {}

  static Registry& TheRegistry();
  static void EndGroups(const Ended& ended, bool failed, const std::string& reason);
  static void Finish(const Ended& ended, const absl::Status& error);
  static void FinishEarlier();
  void End();

  const StepId number_;
  tensorflow::CancellationManager* const manager_;

  // Guarded by the registry's mutex.
  bool over_ = false;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<StepError> error_;
  std::map<CommunicatorId, Share> shares_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_STEP_H_
