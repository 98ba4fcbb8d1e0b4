#include "kernels/tf/xla/group_run.h"

#include <string>
#include <unordered_map>
#include <utility>

namespace tf_smddp {
namespace {

struct Registry {
  std::mutex mu;
  std::uint64_t last = 0;                                             // guarded by mu
  std::unordered_map<std::uint64_t, std::shared_ptr<GroupRun>> runs;  // guarded by mu
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;  // never destroyed: calls may run until the process ends
  return *registry;
}

}  // namespace

GroupRun::GroupRun(std::shared_ptr<Engine> engine, CommunicatorId communicator, std::size_t places,
                   std::int64_t ticket)
    : engine_(std::move(engine)), communicator_(communicator), ticket_(ticket), entries_(places) {}

std::uint64_t GroupRun::Keep(std::shared_ptr<GroupRun> run) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.runs.emplace(++registry.last, std::move(run));
  return registry.last;
}

std::shared_ptr<GroupRun> GroupRun::Find(std::uint64_t number) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  const auto found = registry.runs.find(number);
  return found == registry.runs.end() ? nullptr : found->second;
}

void GroupRun::Forget(std::uint64_t number) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mu);
  registry.runs.erase(number);
}

void GroupRun::WithdrawKept(const Status& why) {
  std::unordered_map<std::uint64_t, std::shared_ptr<GroupRun>> runs;
  {
    Registry& registry = TheRegistry();
    std::lock_guard<std::mutex> lock(registry.mu);
    runs = registry.runs;
  }
  for (const auto& [number, run] : runs) run->WithdrawAll(why);
  // Only now: a second thread with an error must find the runs here, and wait as this one does.
  for (const auto& [number, run] : runs) Forget(number);
}

Status GroupRun::Start(std::size_t place, Request request, WhenWritten when_written) {
  Submit(place, std::move(request), std::move(when_written));
  Status status;
  {
    std::lock_guard<std::mutex> lock(mu_);
    status = entries_[place].status;
  }
  if (!status.ok()) WithdrawAll(status);
  return status;
}

Status GroupRun::Finish(std::size_t place) {
  if (!assisted_) {
    assisted_ = true;
    engine_->SubmitAndProgress(communicator_, Caller::kBlocking, [] {}, idle_);
  }
  Status status;
  {
    std::unique_lock<std::mutex> lock(mu_);
    Entry& entry = entries_[place];
    changed_.wait(lock, [&entry] { return entry.ended; });
    status = entry.status;
  }
  if (!status.ok()) WithdrawAll(status);
  return status;
}

Status GroupRun::Run(std::vector<Request> requests, std::vector<WhenWritten> when_written) {
  when_written.resize(requests.size());
  assisted_ = true;
  for (Request& request : requests) {
    request.caller_progresses = true;
    request.seals_at_once = requests.size() == 1;
  }
  const auto submit = [&] {
    // Counts one more, so that the run is not idle between two requests that end at once.
    {
      std::lock_guard<std::mutex> lock(mu_);
      ++under_way_;
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Submit(i, std::move(requests[i]), std::move(when_written[i]));
      std::lock_guard<std::mutex> lock(mu_);
      if (!entries_[i].status.ok()) break;
    }
    std::lock_guard<std::mutex> lock(mu_);
    if (--under_way_ == 0) idle_.store(true, std::memory_order_release);
  };
  engine_->SubmitAndProgress(communicator_, Caller::kBlocking, submit, idle_);
  const Status refused = FirstError();
  if (!refused.ok()) {
    WithdrawAll(refused);
    return refused;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Status status = Finish(i);
    if (!status.ok()) return status;
  }
  return {};
}

void GroupRun::Submit(std::size_t place, Request request, WhenWritten when_written) {
  request.done = [self = shared_from_this(), place](const Status& status) { self->Done(place, status); };
  request.callback_is_trivial = when_written == nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    entries_[place].started = true;
    entries_[place].output = request.output.data;
    entries_[place].when_written = std::move(when_written);
    ++under_way_;
    idle_.store(false, std::memory_order_relaxed);
  }
  const std::uint64_t id = engine_->Submit(std::move(request));
  std::lock_guard<std::mutex> lock(mu_);
  entries_[place].id = id;
}

// After a failure, too: a copy to an output may be under way, whose memory XLA is about to reuse.
void GroupRun::Done(std::size_t place, const Status& status) {
  const WhenWritten& when_written = entries_[place].when_written;
  if (when_written == nullptr) return End(place, status);
  when_written([self = shared_from_this(), place, status](const Status& written) {
    self->End(place, status.ok() ? written : status);
  });
}

void GroupRun::End(std::size_t place, const Status& status) {
  std::lock_guard<std::mutex> lock(mu_);
  Entry& entry = entries_[place];
  entry.ended = true;
  entry.status = status;
  if (--under_way_ == 0) idle_.store(true, std::memory_order_release);
  changed_.notify_all();
}

Status GroupRun::FirstError() {
  std::lock_guard<std::mutex> lock(mu_);
  for (const Entry& entry : entries_) {
    if (!entry.status.ok()) return entry.status;
  }
  return {};
}

void GroupRun::WithdrawAll(const Status& why) {
  const std::string reason = "another tensor of its group failed: " + why.message();
  // The engine has refused the request on this rank alone, so the other ranks must be told.
  if (why.code() == StatusCode::kInvalidArgument) {
    engine_->FailStep(communicator_, kNoStep,
                      "rank " + std::to_string(engine_->config().rank) +
                          " could not run a collective of a compiled function: " + why.message());
  }
  std::vector<std::uint64_t> ids;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const Entry& entry : entries_) {
      if (entry.started && !entry.ended && entry.id != 0) ids.push_back(entry.id);
    }
  }
  for (const std::uint64_t id : ids) engine_->Cancel(id, reason);
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [this] { return under_way_ == 0; });
}

}  // namespace tf_smddp
