// Step: one call of a tf.function, or one run of a session, to which ops belong. It reports to the engine
// that the step has ended, and the error if it has failed.
//
// Place in the stack: between the op kernels and kernels/engine. Not here: the requests that are pending when
// a step fails, which their ops withdraw (submission.h).
//
// TensorFlow's own step numbers do not identify a step: eager ops have them too, each session counts from 1,
// and a nested function that is not inlined gets another. A step is identified by its cancellation manager,
// which all ops of a call share, and no two calls at the same time.
//
// A step that fails after it has taken part in a collective has left others undone, or has lost their
// results. The other ranks must be told: otherwise they would wait for it, or pair its repetition with their
// next step. The end of the data is no failure, since it comes to all ranks in the same step.
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
  // The step of an op that is running. For an op that runs eagerly it is a step with the number kNoStep that
  // never ends. Any thread.
  static std::shared_ptr<Step> Of(tensorflow::OpKernelContext* context, const std::shared_ptr<Engine>& engine,
                                  bool eager);

  // Releases what steps that have ended still hold. Call it after the engine has ended.
  static void ForgetAll();

  StepId number() const { return number_; }

  // Whether the step has failed or was cancelled. Any thread, while the step's op runs.
  bool Cancelled() const;

  // Notes that the step takes part in collectives of `communicator`, so that its failure is reported there.
  // False when the step has ended already. Any thread.
  bool Join(CommunicatorId communicator);

  // Notes that the step has drawn `ticket`. Any thread.
  void Drew(CommunicatorId communicator, std::uint64_t ticket);

  // Notes that the engine has failed a request of the step in `communicator`, so that the step's failure need
  // not be reported there. Any thread.
  void FailedIn(CommunicatorId communicator);

 private:
  // The part of a step in one communicator.
  struct Share {
    std::vector<std::uint64_t> tickets;
    bool failed_in_engine = false;
  };
  // A step that has ended, while it is not certain whether it has failed.
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
