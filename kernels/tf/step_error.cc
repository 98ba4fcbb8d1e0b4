#include "kernels/tf/step_error.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "kernels/common/utf8.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/control_flow.h"

namespace tf_smddp {
namespace {

using ::tensorflow::CancellationManager;
using ::tensorflow::Rendezvous;
using ::tensorflow::RendezvousInterface;
using ::tensorflow::Tensor;

// Nobody sends under such a name.
constexpr char kKeyName[] = "tf_smddp/step_error/";

// A Python traceback comes with its error, and can be long; the first lines say what happened.
constexpr std::size_t kMaxTextBytes = 1000;

}  // namespace

// The rendezvous may answer late, on another thread, so the answer owns all that its callback needs.
struct StepError::Answer {
  enum State { kAsked, kWaiting, kOver };

  void Come(const absl::Status& error) {
    std::unique_lock<std::mutex> lock(mu);
    const State before = state;
    state = kOver;
    if (before == kAsked) status = error;
    if (before != kWaiting) return;
    const std::function<void(const absl::Status&)> call = std::move(later);
    lock.unlock();
    call(error);
  }

  // Returns whether it was waiting. Sets *found, unless it is nullptr, to the answer so far.
  bool End(absl::Status* found) {
    std::unique_lock<std::mutex> lock(mu);
    const bool was_waiting = state == kWaiting;
    state = kOver;
    later = nullptr;
    if (found != nullptr) *found = status;
    lock.unlock();
    withdrawal.StartCancel();  // calls Come, or it has been called
    return was_waiting;
  }

  CancellationManager withdrawal;
  std::mutex mu;
  State state = kAsked;                            // guarded by mu
  absl::Status status;                             // guarded by mu
  std::function<void(const absl::Status&)> later;  // guarded by mu
};

StepError::StepError(tensorflow::OpKernelContext* context)
    : rendezvous_(context->rendezvous()),
      owned_(dynamic_cast<Rendezvous*>(context->rendezvous())),
      device_(context->device()->name()),
      incarnation_(context->device()->attributes().incarnation()) {
  if (owned_ != nullptr) owned_->Ref();
}

StepError::~StepError() {
  if (owned_ != nullptr) owned_->Unref();
}

absl::Status StepError::Ask() const {
  if (rendezvous_ == nullptr) return absl::OkStatus();
  const auto answer = std::make_shared<Answer>();
  Receive(answer);
  absl::Status status;
  answer->End(&status);
  return status;
}

absl::Status StepError::AskAndWait(std::function<void(const absl::Status&)> later) {
  if (rendezvous_ == nullptr) return absl::OkStatus();
  waiting_ = std::make_shared<Answer>();
  Receive(waiting_);
  std::lock_guard<std::mutex> lock(waiting_->mu);
  if (waiting_->state == Answer::kAsked) {
    waiting_->state = Answer::kWaiting;
    waiting_->later = std::move(later);
  }
  return waiting_->status;
}

bool StepError::Withdraw() { return waiting_ != nullptr && waiting_->End(nullptr); }

void StepError::Receive(const std::shared_ptr<Answer>& answer) const {
  // Each receive has a key of its own: a rendezvous tells those of one key apart by their cancellation
  // tokens, which are not unique over several cancellation managers.
  static std::atomic<std::uint64_t> number{0};
  const std::string name = kKeyName + std::to_string(number.fetch_add(1));
  Rendezvous::ParsedKey key;
  const absl::Status parsed = Rendezvous::ParseKey(
      Rendezvous::CreateKey(device_, incarnation_, device_, name, tensorflow::FrameAndIter(0, 0)), &key);
  if (!parsed.ok()) {
    answer->Come(parsed);
    return;
  }
  RendezvousInterface::Args args;
  args.cancellation_manager = &answer->withdrawal;
  rendezvous_->RecvAsync(
      key, args,
      [answer](const absl::Status& status, const RendezvousInterface::Args&, const RendezvousInterface::Args&,
               const Tensor&, bool) { answer->Come(status); });
}

std::string DescribeStepError(const absl::Status& error) {
  if (error.ok()) return "was cancelled (if it failed, its own output says why)";
  // The rest is the place in the graph, which means nothing to another rank.
  const std::string_view message = error.message();
  std::string text =
      ValidUtf8(std::string(Utf8Prefix(message.substr(0, message.find("\n\t [[{{")), kMaxTextBytes)));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return "failed with " + absl::StatusCodeToString(error.code()) + ": " + text;
}

}  // namespace tf_smddp
