#include "kernels/engine/lone_engine.h"

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/collectives/collective.h"
#include "kernels/control/job_segment.h"
#include "kernels/engine/core/resolve.h"
#include "kernels/engine/job/communicator_checks.h"
#include "kernels/engine/watch/timeline.h"

namespace tf_smddp {
namespace {

// Begins a copy, and waits for it. `what` is for the message.
Status Copy(const std::string& what, const std::function<Status(MemoryKind::Ended)>& begin) {
  std::promise<Status> outcome;
  Status status = begin([&outcome](const Status& ended) { outcome.set_value(ended); });
  if (status.ok()) status = outcome.get_future().get();
  return status.ok() ? status : Internal("could not copy the " + what + ": " + status.message());
}

// Copies what lies where the CPU may not touch it to `host`, and sets *address to that.
Status FromDevice(const Request& request, std::vector<std::byte>* host, const void** address) {
  const InputBuffer& input = request.input;
  host->resize(InputBytes(request));
  *address = host->data();
  return Copy("input of '" + request.label + "' from " + input.kind->name(), [&](MemoryKind::Ended ended) {
    return input.kind->CopyToHost(input.data, host->data(), host->size(), input.stream, std::move(ended));
  });
}

Status ToDevice(const Request& request, const std::vector<std::byte>& host, const Buffer& output) {
  return Copy("result of '" + request.label + "' to " + output.kind->name(), [&](MemoryKind::Ended ended) {
    return output.kind->CopyFromHost(host.data(), output.data, host.size(), output.stream, std::move(ended));
  });
}

// Whether the result of one rank is its input.
bool IsIdentity(const Operation& operation) {
  return !IsReduction(operation.kind) || (operation.prescale == 1.0 && operation.postscale == 1.0);
}

// Input and output lie on one device: nothing passes through the host, and nobody waits. Whoever waits for
// the device learns of an error of the copy.
Status CopyOnDevice(const InputBuffer& input, const Buffer& output, std::uint64_t bytes) {
  if (input.data == output.data && input.stream == output.stream) return {};
  return input.kind->Copy(input, output, bytes, [](const Status&) {});
}

Status Run(const Request& request) {
  const Collective& collective = FindCollective(request.operation.kind);
  Call call = CallOf(request);
  call.root = ParticipantId(0);
  if (RowsMayDiffer(request.operation.kind)) call.rows = {call.num_rows};
  if (InfoOf(request.operation.kind).Is(kHasSplits)) call.splits = {{call.num_rows}};
  Buffer output = request.output;
  Status status;
  if (collective.reach() == Collective::Reach::kOwnOutput) {
    const std::vector<std::int64_t> rows = collective.OutputRows(call, ParticipantId(0));
    const Clock::time_point limit = Clock::now() + kMemoryPatience;
    status = request.allocate(rows, &output.data);
    while (status.code() == StatusCode::kNoMemoryNow && Clock::now() < limit) {
      std::this_thread::sleep_for(kMemoryPause);
      status = request.allocate(rows, &output.data);
    }
  }
  const std::uint64_t count = collective.OutputCount(call, ParticipantId(0));
  if (!status.ok() || count == 0) return status;
  if (!request.input.on_host() && request.input.kind == output.kind && IsIdentity(request.operation)) {
    return CopyOnDevice(request.input, output, InputBytes(request));
  }
  std::vector<std::byte> host_input, host_output;
  const void* from = request.input.data;
  void* to = output.data;
  if (!request.input.on_host()) status = FromDevice(request, &host_input, &from);
  if (!status.ok()) return status;
  if (!output.on_host()) {
    host_output.resize(count * DTypeBytes(request.operation.dtype));
    to = host_output.data();
  }
  collective.Direct(call, ParticipantId(0), &from, &to, 0, count);
  return output.on_host() ? status : ToDevice(request, host_output, output);
}

}  // namespace

LoneEngine::LoneEngine(const Config& config) : Engine(config) {
  known_[kWorld] = std::make_shared<CommunicatorCounters>();
  LogStart("");
}

LoneEngine::~LoneEngine() { Shutdown(); }

Status LoneEngine::CreateCommunicator(const std::vector<int>& ranks, CommunicatorId* id) {
  Status status = CheckUsable();
  if (status.ok()) status = CheckRanks(ranks, /*size=*/1);
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu_);
  if (known_.size() >= kMaxCommunicators) return NoRoomForCommunicator(kMaxCommunicators);
  *id = next_id_++;
  known_[*id] = std::make_shared<CommunicatorCounters>();
  return {};
}

Status LoneEngine::CreateCommunicatorAmong(const std::vector<int>& ranks, std::uint64_t key,
                                           CommunicatorId* id) {
  Status status = CheckUsable();
  if (status.ok()) status = CheckRanks(ranks, /*size=*/1);
  if (status.ok()) status = CheckKey(key);
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu_);
  if (known_.size() >= kMaxCommunicators) return NoRoomForCommunicator(kMaxCommunicators);
  if (!keys_.insert(key).second) return KeyWasUsed(key, /*rank=*/0);
  *id = kFirstOfMembers + static_cast<CommunicatorId>(key);
  known_[*id] = std::make_shared<CommunicatorCounters>();
  return {};
}

Status LoneEngine::RemoveCommunicator(CommunicatorId id) {
  Status status = CheckUsable();
  if (status.ok() && id == kWorld) status = CannotRemoveWorld();
  if (status.ok()) status = CheckExists(id);
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = known_.find(id);
  if (found == known_.end()) return NoSuchCommunicator(id);
  CommunicatorStats last;
  found->second->Take(/*reset=*/false, &last);
  AddByKind(last.collectives, &gone_);
  known_.erase(found);
  return {};
}

std::shared_ptr<CommunicatorCounters> LoneEngine::Find(CommunicatorId id) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = known_.find(id);
  return found == known_.end() ? nullptr : found->second;
}

Status LoneEngine::CheckExists(CommunicatorId id) {
  return Find(id) != nullptr ? Status() : NoSuchCommunicator(id);
}

std::vector<int> LoneEngine::RanksOf(CommunicatorId id) {
  return CheckUsable().ok() && Find(id) != nullptr ? std::vector<int>{0} : std::vector<int>();
}

Status LoneEngine::Leave(CommunicatorId id) {
  Status status = CheckUsable();
  return status.ok() ? CheckExists(id) : status;
}

Status LoneEngine::Return(CommunicatorId id, RankId* last) {
  *last = RankId(0);
  return Leave(id);
}

Status LoneEngine::DrawTicket(CommunicatorId id, StepId, std::uint64_t* ticket) {
  Status status = CheckUsable();
  if (status.ok()) status = CheckExists(id);
  if (status.ok()) *ticket = tickets_.fetch_add(1);
  return status;
}

std::uint64_t LoneEngine::Submit(Request&& request) {
  const Clock::time_point begin = Clock::now();
  Status status = CheckUsable();
  const std::shared_ptr<CommunicatorCounters> counters = status.ok() ? Find(request.communicator) : nullptr;
  if (status.ok()) {
    status = counters == nullptr ? NoSuchCommunicator(request.communicator) : CheckRequest(request, {0});
  }
  if (status.ok()) status = Run(request);
  Cost cost;
  cost.begun = begin;
  cost.moving = Clock::now() - begin;
  cost.in_place = request.input.data != nullptr && request.output.data == request.input.data;
  std::uint64_t step = 0;  // that has ended with it
  if (counters != nullptr && status.ok()) {
    counters->Completed(request.operation.kind, InputBytes(request), cost);
    step = counters->Blocked(request.pairing, begin, begin + cost.moving);
  }
  if (counters != nullptr && !status.ok()) counters->Failed(request.operation.kind);
  if (counters != nullptr && timeline_->running()) {
    timeline_->Add(request, InputBytes(request), begin, cost, begin + cost.moving, !status.ok());
    if (step > 0) timeline_->AddStep(request.communicator, step, begin + cost.moving);
  }
  request.done(status);
  return 0;
}

Status LoneEngine::Stats(bool reset, EngineStats* stats) {
  Status status = CheckStatsUsable(stats);
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu_);
  AddByKind(gone_, &stats->collectives);
  if (reset) gone_ = StatsByKind();
  for (const auto& [id, counters] : known_) {
    CommunicatorStats each;
    each.id = id;
    each.ranks = {0};
    counters->Take(reset, &each);
    AddByKind(each.collectives, &stats->collectives);
    stats->communicators.push_back(std::move(each));
  }
  return {};
}

Status LoneEngine::Shutdown() {
  if (!InForkedChild() && !shut_down_.exchange(true)) CloseTimeline();
  return {};
}

}  // namespace tf_smddp
