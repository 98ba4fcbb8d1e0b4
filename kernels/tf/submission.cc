#include "kernels/tf/submission.h"

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/tf/conversions.h"
#include "kernels/tf/step_error.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_smddp {
namespace {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::CancellationManager;
using ::tensorflow::CancellationToken;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// One execution of an op: its requests, and its end.
class Submission : public std::enable_shared_from_this<Submission> {
 public:
  Submission(OpKernelContext* context, std::shared_ptr<Engine> engine, std::shared_ptr<Step> step,
             std::shared_ptr<GpuTensors> gpu, const Request& first, AsyncOpKernel::DoneCallback done)
      : context_(context),
        engine_(std::move(engine)),
        done_(std::move(done)),
        communicator_(first.communicator),
        step_(std::move(step)),
        gpu_(std::move(gpu)),
        label_(std::string(CollectiveKindName(first.operation.kind)) + " '" + first.label + "'") {
    for (int i = 0; i < context->num_inputs(); ++i) inputs_.push_back(context->input(i));
  }

  void Run(bool eager, std::vector<Request> requests) {
    step_->Join(communicator_);
    manager_ = context_->cancellation_manager();
    if (manager_ != nullptr) {
      token_ = manager_->get_cancellation_token();
      if (!manager_->RegisterCallback(token_, [self = shared_from_this()] { self->Cancel(); })) {
        RefuseCancelled();
        return;
      }
    }
    remaining_ = requests.size() + 1;  // one for Submit's loop
    // The callback of an eager op only wakes the thread that waits for it, which is this one. With a
    // cancellation manager it may also wait (DeregisterCallback), and on a GPU it calls the driver.
    for (Request& request : requests) {
      request.callback_is_trivial = eager && manager_ == nullptr && gpu_ == nullptr;
      request.caller_progresses = true;
      request.seals_at_once = eager && requests.size() == 1;
    }
    engine_->SubmitAndProgress(
        communicator_, eager ? Caller::kBlocking : Caller::kNonBlocking, [&] { Submit(std::move(requests)); },
        ended_);
  }

 private:
  void Submit(std::vector<Request> requests) {
    for (Request& request : requests) {
      request.done = [self = shared_from_this()](const Status& status) { self->EndOne(status); };
      const std::uint64_t id = engine_->Submit(std::move(request));
      std::unique_lock<std::mutex> lock(mu_);
      ids_.push_back(id);
      const bool cancelled = cancelled_;
      lock.unlock();
      if (cancelled) engine_->Cancel(id, Reason());
    }
    EndOne(Status());
  }

  // Call it while the op has not ended.
  std::string Reason() const { return "its step " + DescribeStepError(StepError(context_).Ask()); }

  // The step has failed already. The other ranks run this op, and would wait for this one.
  void RefuseCancelled() {
    const std::string reason = Reason();
    engine_->FailStep(
        communicator_, step_->number(),
        "rank " + std::to_string(engine_->config().rank) + " did not run " + label_ + ": " + reason);
    step_->FailedIn(communicator_);
    context_->SetStatus(absl::InternalError(label_ + " was not run: " + reason));
    done_();
  }

  // The op has not ended, and does not while this runs.
  void Cancel() {
    const std::string reason = Reason();
    std::unique_lock<std::mutex> lock(mu_);
    cancelled_ = true;
    const std::vector<std::uint64_t> ids = ids_;
    lock.unlock();
    for (const std::uint64_t id : ids) engine_->Cancel(id, reason);
  }

  void EndOne(const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (status_.ok() && !status.ok()) status_ = status;
      if (--remaining_ > 0) return;
    }
    if (gpu_ == nullptr) return Finish();
    // TensorFlow's stream could wait for the results in place of this op. That would save the host's round
    // trip at the end of a step. But the results of a collective that fails later are garbage: the optimizer
    // would run on them, and the weights could be saved before anybody knows. After a failure, too: a copy to
    // an output may be under way, whose memory TensorFlow is about to reuse.
    gpu_->WhenWritten([self = shared_from_this()](const Status& written) {
      if (self->status_.ok()) self->status_ = written;
      // The work of `done` would hold up the thread that watches the device.
      (*self->context_->runner())([self] { self->Finish(); });
    });
  }

  // The last request has ended.
  void Finish() {
    // Outside the lock: it waits for a callback that is running.
    if (manager_ != nullptr) manager_->DeregisterCallback(token_);
    if (!status_.ok()) {
      Tell();
      context_->SetStatus(ToTensorFlow(status_));
    }
    inputs_.clear();
    AsyncOpKernel::DoneCallback done = std::move(done_);
    done();  // `context_` is gone from here on
    ended_.store(true, std::memory_order_release);
  }

  // Tells the other ranks of a request that the engine has refused on this rank alone.
  void Tell() {
    if (status_.code() == StatusCode::kInvalidArgument) {
      engine_->FailStep(communicator_, step_->number(),
                        "rank " + std::to_string(engine_->config().rank) + " could not run " + label_ + ": " +
                            status_.message());
    }
    step_->FailedIn(communicator_);
  }

  OpKernelContext* const context_;
  const std::shared_ptr<Engine> engine_;
  AsyncOpKernel::DoneCallback done_;
  const CommunicatorId communicator_;
  const std::shared_ptr<Step> step_;
  const std::shared_ptr<GpuTensors> gpu_;  // nullptr on the CPU
  const std::string label_;                // of the first request
  std::vector<Tensor> inputs_;
  CancellationManager* manager_ = nullptr;
  CancellationToken token_ = 0;
  std::atomic<bool> ended_{false};

  std::mutex mu_;
  std::size_t remaining_ = 0;       // guarded by mu_
  Status status_;                   // guarded by mu_ until the last request has ended
  std::vector<std::uint64_t> ids_;  // guarded by mu_
  bool cancelled_ = false;          // guarded by mu_
};

}  // namespace

void SubmitAsync(OpKernelContext* context, std::shared_ptr<Engine> engine, std::shared_ptr<Step> step,
                 std::shared_ptr<GpuTensors> gpu, bool eager, std::vector<Request> requests,
                 AsyncOpKernel::DoneCallback done) {
  const auto submission = std::make_shared<Submission>(context, std::move(engine), std::move(step),
                                                       std::move(gpu), requests[0], std::move(done));
  submission->Run(eager, std::move(requests));
}

}  // namespace tf_smddp
