#include "tests/cpp/testing/step.h"

#include <atomic>
#include <utility>

namespace tf_smddp::testing {

namespace {
std::atomic<StepId> next_id{1};
}  // namespace

Step::Step(Engine& engine) : engine_(engine), id_(next_id.fetch_add(1)) {}

Step::~Step() { End(); }

bool Step::DrawTicket(CommunicatorId communicator, std::uint64_t* ticket) {
  const Status status = engine_.DrawTicket(communicator, id_, ticket);
  if (!status.ok()) {
    Record(status);
    CancelAll(status.message());
    return false;
  }
  tickets_.emplace_back(communicator, *ticket);
  return true;
}

void Step::Submit(Request request) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!status_.ok()) return;
    ++under_way_;
    failed_in_.emplace(request.communicator, false);
  }
  request.step = id_;
  request.done = [this, communicator = request.communicator](const Status& status) {
    Record(status);
    if (!status.ok()) CancelAll(status.message());
    std::lock_guard<std::mutex> lock(mu_);
    if (!status.ok()) failed_in_[communicator] = true;
    --under_way_;
    changed_.notify_all();
  };
  const std::uint64_t id = engine_.Submit(std::move(request));
  std::unique_lock<std::mutex> lock(mu_);
  ids_.push_back(id);
  const Status status = status_;
  lock.unlock();
  if (!status.ok()) engine_.Cancel(id, status.message());
}

void Step::Fail(const std::string& reason, const std::vector<CommunicatorId>& communicators) {
  Record(Internal(reason));
  for (const CommunicatorId communicator : communicators) engine_.FailStep(communicator, id_, reason);
  CancelAll(reason);
}

Status Step::End() {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [this] { return under_way_ == 0; });
  const Status status = status_;
  const std::map<CommunicatorId, bool> failed_in = std::exchange(failed_in_, {});
  lock.unlock();
  for (const auto& [communicator, failed] : failed_in) {
    if (!status.ok() && !failed) engine_.FailStep(communicator, id_, status.message());
  }
  for (const auto& [communicator, ticket] : tickets_) {
    engine_.EndGroup(communicator, ticket, !status.ok(), status.message());
  }
  tickets_.clear();
  return status;
}

void Step::Record(const Status& status) {
  std::lock_guard<std::mutex> lock(mu_);
  if (status_.ok()) status_ = status;
}

void Step::CancelAll(const std::string& reason) {
  std::vector<std::uint64_t> ids;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ids.swap(ids_);
  }
  for (const std::uint64_t id : ids) engine_.Cancel(id, reason);
}

}  // namespace tf_smddp::testing
