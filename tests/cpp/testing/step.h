// Step: what runs together and fails together on a rank, as TensorFlow does it: when one op of a step fails,
// the ops that still wait are cancelled, and the step has ended when all its ops have. A step that has failed
// in one communicator then fails in the others that it has used.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_STEP_H_
#define TF_SMDDP_TESTS_CPP_TESTING_STEP_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/engine.h"

namespace tf_smddp::testing {

class Step {
 public:
  explicit Step(Engine& engine);
  // The step has ended.
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  StepId id() const { return id_; }

  // Draws a ticket. When the engine refuses, the step has failed.
  bool DrawTicket(CommunicatorId communicator, std::uint64_t* ticket);

  // Submits a request of this step. Once the step has failed nothing more is submitted, as in TensorFlow.
  void Submit(Request request);

  // The step fails for a reason of its own, which TensorFlow reports for each communicator that it uses.
  void Fail(const std::string& reason, const std::vector<CommunicatorId>& communicators);

  // Waits for everything that was submitted; the groups whose tickets were drawn have ended then. Returns the
  // first error.
  Status End();

 private:
  void Record(const Status& status);
  void CancelAll(const std::string& reason);

  Engine& engine_;
  const StepId id_;
  std::mutex mu_;
  std::condition_variable changed_;
  int under_way_ = 0;               // guarded by mu_
  Status status_;                   // guarded by mu_; the first error
  std::vector<std::uint64_t> ids_;  // guarded by mu_; of requests that may still wait
  std::map<CommunicatorId, bool>
      failed_in_;  // guarded by mu_; for each one used, whether a request failed there
  std::vector<std::pair<CommunicatorId, std::uint64_t>> tickets_;
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_STEP_H_
