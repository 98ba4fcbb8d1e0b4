#include "kernels/tf/step_mark.h"

#include <atomic>
#include <string>
#include <utility>

#include "kernels/tf/step_error.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/framework/allocation_description.pb.h"

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class StepMark : public tensorflow::TensorBuffer {
 public:
  StepMark(OpKernelContext* context, std::shared_ptr<Engine> engine, CommunicatorId communicator, StepId step)
      : TensorBuffer(&value_),
        engine_(std::move(engine)),
        communicator_(communicator),
        step_(step),
        error_(context) {}

  ~StepMark() override {
    if (used_.load()) return;
    // TensorFlow drops what nobody consumes when the step's last op has run; the step still exists then.
    const absl::Status error = error_.Ask();
    if (error.ok() || absl::IsOutOfRange(error)) return;
    engine_->FailStep(
        communicator_, step_,
        "a step of rank " + std::to_string(engine_->config().rank) + " " + DescribeStepError(error));
  }

  void Use() { used_.store(true); }

  std::size_t size() const override { return sizeof(value_); }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    proto->set_requested_bytes(sizeof(value_));
    proto->set_allocator_name("tf_smddp");
  }
  // So that TensorFlow makes no other tensor in its place.
  bool OwnsMemory() const override { return false; }

 private:
  alignas(64) std::int64_t value_ = kByName;  // as Eigen wants it
  std::atomic<bool> used_{false};
  const std::shared_ptr<Engine> engine_;
  const CommunicatorId communicator_;
  const StepId step_;
  const StepError error_;
};

}  // namespace

Tensor MakeStepMark(OpKernelContext* context, std::shared_ptr<Engine> engine, CommunicatorId communicator,
                    StepId step) {
  auto* mark = new StepMark(context, std::move(engine), communicator, step);
  Tensor tensor(tensorflow::DT_INT64, tensorflow::TensorShape({}), mark);
  mark->Unref();  // the tensor has its own
  return tensor;
}

void UseStepMark(const Tensor& ticket) {
  const auto* buffer = tensorflow::DMAHelper::buffer(&ticket);
  if (auto* mark = dynamic_cast<StepMark*>(const_cast<tensorflow::TensorBuffer*>(buffer))) mark->Use();
}

}  // namespace tf_smddp
