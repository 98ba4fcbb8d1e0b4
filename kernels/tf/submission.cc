#include "kernels/tf/submission.h"

#include <memory>
#include <mutex>
#include <utility>

#include "kernels/tf/conversions.h"
#include "kernels/tf/global_engine.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_smddp {
namespace {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::CancellationManager;
using ::tensorflow::CancellationToken;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

constexpr char kStepFailed[] =
    "the step that it belongs to failed or was cancelled on that rank; its own error is in its output";

// One execution of an op: its requests, and its end.
class Submission : public std::enable_shared_from_this<Submission> {
 public:
  Submission(OpKernelContext* context, std::shared_ptr<Engine> engine, AsyncOpKernel::DoneCallback done)
      : context_(context), engine_(std::move(engine)), done_(std::move(done)) {
    for (int i = 0; i < context->num_inputs(); ++i) inputs_.push_back(context->input(i));
  }

  void Run(std::vector<Request> requests) {
    manager_ = context_->cancellation_manager();
    if (manager_ != nullptr) {
      token_ = manager_->get_cancellation_token();
      if (!manager_->RegisterCallback(token_, [self = shared_from_this()] { self->Cancel(); })) {
        // The step has failed already. The other ranks run this op, and would wait for us.
        engine_->Abort("rank " + std::to_string(engine_->config().rank) + " did not run '" +
                       requests[0].label + "': " + kStepFailed);
        context_->SetStatus(
            absl::InternalError(std::string("'") + requests[0].label + "' was not run: " + kStepFailed));
        done_();
        return;
      }
    }
    remaining_ = requests.size() + 1;  // one for this loop
    for (Request& request : requests) {
      request.done = [self = shared_from_this()](const Status& status) { self->EndOne(status); };
      const std::uint64_t id = engine_->Submit(std::move(request));
      std::unique_lock<std::mutex> lock(mu_);
      ids_.push_back(id);
      const bool cancelled = cancelled_;
      lock.unlock();
      if (cancelled) engine_->Cancel(id, kStepFailed);
    }
    EndOne(Status());
  }

 private:
  void Cancel() {
    std::unique_lock<std::mutex> lock(mu_);
    cancelled_ = true;
    const std::vector<std::uint64_t> ids = ids_;
    lock.unlock();
    for (const std::uint64_t id : ids) engine_->Cancel(id, kStepFailed);
  }

  void EndOne(const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (status_.ok() && !status.ok()) status_ = status;
      if (--remaining_ > 0) return;
    }
    // Outside the lock: it waits for a callback that is running.
    if (manager_ != nullptr) manager_->DeregisterCallback(token_);
    if (!status_.ok()) context_->SetStatus(ToTensorFlow(status_));
    inputs_.clear();
    AsyncOpKernel::DoneCallback done = std::move(done_);
    done();  // `context_` is gone from here on
  }

  OpKernelContext* const context_;
  const std::shared_ptr<Engine> engine_;
  AsyncOpKernel::DoneCallback done_;
  std::vector<Tensor> inputs_;
  CancellationManager* manager_ = nullptr;
  CancellationToken token_ = 0;

  std::mutex mu_;
  std::size_t remaining_ = 0;       // guarded by mu_
  Status status_;                   // guarded by mu_ until the last request has ended
  std::vector<std::uint64_t> ids_;  // guarded by mu_
  bool cancelled_ = false;          // guarded by mu_
};

}  // namespace

absl::Status DescribeTensors(const Tensor* input, Tensor* output, const std::string& label,
                             Request* request) {
  request->label = label;
  if (input == nullptr) {
    request->dtype = DType::kUInt8;
    request->shape = {0};
    return absl::OkStatus();
  }
  request->shape = ToShape(input->shape());
  request->input = input->tensor_data().data();
  request->output = const_cast<char*>(output->tensor_data().data());
  return ToDType(input->dtype(), &request->dtype);
}

void SubmitAsync(OpKernelContext* context, std::vector<Request> requests, AsyncOpKernel::DoneCallback done) {
  std::shared_ptr<Engine> engine = GlobalEngine();
  OP_REQUIRES_ASYNC(context, engine != nullptr, ToTensorFlow(NotInitialized()), done);
  std::make_shared<Submission>(context, std::move(engine), std::move(done))->Run(std::move(requests));
}

}  // namespace tf_smddp
