#include "kernels/tf/step.h"

#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/tf/tensorflow_private.h"

namespace tf_smddp {

using ::tensorflow::CancellationManager;
using ::tensorflow::OpKernelContext;

namespace {

// The most tickets that a step holds; then the older half is settled. One call can run many collectives, and
// many calls can share a cancellation manager of the user's.
constexpr std::size_t kMaxTickets = 8192;

// How many ended steps are kept for ops of theirs that run late: more than a process runs at the same time.
constexpr std::size_t kMaxOver = 64;

}  // namespace

struct Step::Ended {
  StepId number;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<StepError> error;
  std::map<CommunicatorId, Share> shares;
};

struct Step::Registry {
  std::mutex mu;  // guards everything below, and the steps' own
  StepId last_number = kNoStep;
  std::map<CancellationManager*, std::shared_ptr<Step>> steps;
  std::deque<std::shared_ptr<Step>> over;  // those in `steps` that are over, oldest first
  std::vector<std::shared_ptr<Ended>> ended;
};

// Never destroyed: TensorFlow's threads may call late.
Step::Registry& Step::TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

std::shared_ptr<Step> Step::Of(OpKernelContext* context, const std::shared_ptr<Engine>& engine, bool eager) {
  CancellationManager* manager = context->cancellation_manager();
  if (eager || manager == nullptr) {
    static const std::shared_ptr<Step>* none = new std::shared_ptr<Step>(new Step(kNoStep, nullptr, nullptr));
    return *none;
  }
  Registry& registry = TheRegistry();
  std::shared_ptr<Step> step;
  {
    std::lock_guard<std::mutex> lock(registry.mu);
    std::shared_ptr<Step>& known = registry.steps[manager];
    // An ended step is the right one for a late op of its own. Otherwise its manager has been destroyed, and
    // another manager has the same address.
    if (known != nullptr && (!known->over_ || known->Cancelled())) return known;
    known.reset(new Step(++registry.last_number, manager, engine));
    known->error_ = std::make_unique<StepError>(context);
    step = known;
  }
  FinishEarlier();
  // The manager calls back when the step fails, and when it is destroyed: at the step's end, unless it is the
  // user's.
  if (!manager->RegisterCallback(manager->get_cancellation_token(), [step] { step->End(); })) step->End();
  return step;
}

bool Step::Cancelled() const {
  return manager_ != nullptr && (manager_->IsCancelled() || manager_->IsCancelling());
}

bool Step::Join(CommunicatorId communicator) {
  if (number_ == kNoStep) return true;
  std::lock_guard<std::mutex> lock(TheRegistry().mu);
  if (!over_) shares_[communicator];
  return !over_;
}

void Step::Drew(CommunicatorId communicator, std::uint64_t ticket) {
  if (number_ == kNoStep) return;
  std::vector<std::uint64_t> settled;
  std::shared_ptr<Engine> engine;
  bool over = false;
  {
    std::lock_guard<std::mutex> lock(TheRegistry().mu);
    over = over_;
    engine = engine_;
    std::vector<std::uint64_t>& tickets = shares_[communicator].tickets;
    if (!over) tickets.push_back(ticket);
    if (tickets.size() > kMaxTickets) {
      const auto middle = tickets.begin() + kMaxTickets / 2;
      settled.assign(tickets.begin(), middle);
      tickets.erase(tickets.begin(), middle);
    }
  }
  if (engine == nullptr) return;
  if (over) engine->EndGroup(communicator, ticket, true, "the step had failed when it drew the ticket");
  for (const std::uint64_t old : settled) engine->EndGroup(communicator, old, false, "");
}

void Step::FailedIn(CommunicatorId communicator) {
  if (number_ == kNoStep) return;
  std::lock_guard<std::mutex> lock(TheRegistry().mu);
  if (!over_) shares_[communicator].failed_in_engine = true;
}

void Step::End() {
  Registry& registry = TheRegistry();
  const auto ended = std::make_shared<Ended>();
  std::shared_ptr<Step> oldest;
  {
    std::lock_guard<std::mutex> lock(registry.mu);
    over_ = true;
    ended->number = number_;
    ended->engine = engine_;
    ended->error = std::move(error_);
    ended->shares.swap(shares_);
    registry.over.push_back(shared_from_this());
    if (registry.over.size() > kMaxOver) {
      oldest = std::move(registry.over.front());
      registry.over.pop_front();
      const auto found = registry.steps.find(oldest->manager_);
      if (found != registry.steps.end() && found->second == oldest) registry.steps.erase(found);
    }
  }
  if (ended->shares.empty() || ended->engine == nullptr) return;
  if (!ended->error->CanAsk()) {
    // A function of tf.data's, such as the body of a loop over a dataset. Nothing will complete its groups.
    EndGroups(*ended, true, "the step " + DescribeStepError(absl::OkStatus()));
    return;
  }
  const bool outlives = ended->error->OutlivesStep();
  if (!outlives && !SessionRunGoesOn(*manager_)) return;
  // A step that has no error when it ends has not failed, with one exception: a nested function that was not
  // inlined cancels the whole call when it fails, before the call has the error. So the answer stays open
  // until the next step.
  const absl::Status error =
      ended->error->AskAndWait([ended](const absl::Status& late) { Finish(*ended, late); });
  if (!error.ok()) {
    Finish(*ended, error);
    return;
  }
  if (!outlives) return;  // a session's step that was cancelled: its error comes, or the session ends
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.ended.push_back(ended);
}

void Step::EndGroups(const Ended& ended, bool failed, const std::string& reason) {
  for (const auto& [communicator, share] : ended.shares) {
    for (const std::uint64_t ticket : share.tickets) {
      ended.engine->EndGroup(communicator, ticket, failed, reason);
    }
  }
}

void Step::Finish(const Ended& ended, const absl::Status& error) {
  const std::string what = DescribeStepError(error);
  EndGroups(ended, !error.ok(), "the step " + what);
  if (error.ok() || absl::IsOutOfRange(error)) return;
  for (const auto& [communicator, share] : ended.shares) {
    if (share.failed_in_engine) continue;
    const std::string rank = std::to_string(ended.engine->config().rank);
    ended.engine->FailStep(communicator, ended.number, "a step of rank " + rank + " " + what);
  }
}

void Step::FinishEarlier() {
  std::vector<std::shared_ptr<Ended>> ended;
  {
    std::lock_guard<std::mutex> lock(TheRegistry().mu);
    ended.swap(TheRegistry().ended);
  }
  for (const std::shared_ptr<Ended>& one : ended) {
    if (one->error->Withdraw()) Finish(*one, absl::OkStatus());
  }
}

void Step::ForgetAll() {
  FinishEarlier();
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  for (auto& entry : registry.steps) entry.second->engine_ = nullptr;
}

}  // namespace tf_smddp
