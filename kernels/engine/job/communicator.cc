#include "kernels/engine/job/communicator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/control/relay_message.h"

namespace tf_smddp {

Communicator::Communicator(Job* job, CommunicatorId id, std::vector<int> ranks)
    : job_(job), id_(id), ranks_(std::move(ranks)), handle_(std::make_shared<CommunicatorHandle>(this)) {
  for (const std::vector<int>& host : job->hosts()) {
    std::vector<int> members;
    std::set_intersection(host.begin(), host.end(), ranks_.begin(), ranks_.end(),
                          std::back_inserter(members));
    if (members.empty()) continue;
    if (&host != &job->local_ranks()) outside_ranks_ |= RankSet(members);
    hosts_.push_back(std::move(members));
  }
}

Status Communicator::Open(Job* job, CommunicatorId id, int region, std::vector<int> ranks,
                          std::unique_ptr<Communicator>* communicator) {
  std::unique_ptr<Communicator> opening(new Communicator(job, id, std::move(ranks)));
  std::vector<int> here;
  for (const int rank : opening->ranks_) {
    if (job->LocalRankOf(rank) >= 0) here.push_back(rank);
  }
  Status status = LocalGroup::Open(job, region, std::move(here), opening->wired(), &opening->group_);
  if (!status.ok()) return status;
  opening->JoinBackends();
  *communicator = std::move(opening);
  return {};
}

Communicator::~Communicator() {
  transfers_.clear();  // they may find, at their end, that the job has failed
  handle_->End();
}

void Communicator::JoinBackends() {
  CommunicatorView view;
  view.config = &config();
  view.logger = &job_->logger();
  view.id = id_;
  view.ranks = ranks_;
  view.hosts = hosts_;
  view.members = group_->ranks();
  view.self = MemberId(group_->index());
  view.wire = wired() ? &wire() : nullptr;
  view.arena = job_->shared_arena();
  view.shared = group_->segment().backends();
  view.turn_record = &job_->segment().turn_record(group_->region());
  view.turn_counter = &job_->segment().turn_counter();
  if (wired()) view.ask_for_turn = [this](std::uint64_t batch) { AskForTurn(batch); };
  view.fail_job = [handle = handle_](const std::string& text) {
    handle->Call([&text](Communicator* self) {
      self->job_->Abort("rank " + std::to_string(self->job_->rank()) + ": " + text);
    });
  };
  view.job_error = [handle = handle_] {
    Status error;
    handle->Call([&error](Communicator* self) {
      if (self->job_->aborted()) error = Internal(self->job_->AbortText());
    });
    return error;
  };
  view.wake = [handle = handle_] { handle->Call([](Communicator* self) { self->group_->RingSelf(); }); };
  for (const std::unique_ptr<Backend>& backend : job_->backends()) {
    Backend::Parts parts = backend->Join(view);
    std::move(parts.transfers.begin(), parts.transfers.end(), std::back_inserter(transfers_));
    if (parts.keeper != nullptr) keeper_ = std::move(parts.keeper);
    view.shared += backend->SharedBytes(config(), group_->size());
  }
}

// The relays of the world draw it (relay.h).
void Communicator::AskForTurn(std::uint64_t batch) {
  if (head().value() != job_->rank()) return;
  RelayMessage message;
  message.kind = RelayMessage::kTurn;
  message.communicator = id_;
  message.ticket = batch;
  const RankId head_of_world(job_->hosts().front().front());
  wire().Send(head_of_world, {kWorld, Wire::Channel::kOrder}, Encode({message}));
}

bool Communicator::Fail(std::uint64_t incarnation, std::uint64_t origin, const std::string& text) {
  if (!wired()) return FailHere(incarnation, origin, text);
  const FailureRecord& record = group_->segment().failure();
  if (!record.Begun(incarnation) || record.Failed(incarnation)) return false;
  RelayMessage message;
  message.kind = RelayMessage::kFailed;
  message.incarnation = incarnation;
  message.origin = origin;
  message.text = text;
  wire().Send(head(), {id_, Wire::Channel::kOrder}, Encode({message}));
  return true;
}

bool Communicator::FailHere(std::uint64_t incarnation, std::uint64_t origin, const std::string& text,
                            RankId last_to_leave) {
  if (!group_->segment().failure().Raise(incarnation, origin, text, last_to_leave)) return false;
  if (!last_to_leave.valid()) job_->logger().Log(LogLevel::kInfo, "a step fails on all ranks: " + text);
  group_->RingAll();
  return true;
}

std::uint64_t Communicator::ShutDownMask() {
  MemberMask members;
  for (int member = 0; member < group_->size(); ++member) {
    if (group_->HasShutDown(member)) members |= MemberMask::Of(MemberId(member));
  }
  CommunicatorSegment& segment = group_->segment();
  if (wired() && segment.outside_shut_down().load(std::memory_order_seq_cst) != 0) {
    members |= MemberMask::Of(segment.outside());
  }
  return members.bits();
}

bool Communicator::AllAreKnownToHaveShutDown() {
  const std::uint64_t known = group_->segment().num_shut_down().load(std::memory_order_seq_cst);
  return known == static_cast<std::uint64_t>(size());
}

RankSet Communicator::ToRanks(std::uint64_t members) const {
  RankSet ranks;
  for (int member = 0; member < group_->size(); ++member) {
    if (MemberMask(members).Contains(MemberId(member))) ranks.Add(RankId(group_->rank_of(member)));
  }
  if (wired() && MemberMask(members).Contains(group_->segment().outside())) ranks |= outside_ranks_;
  return ranks;
}

std::string Communicator::Names(std::uint64_t members) const { return RankList(ToRanks(members)); }

void Communicator::LogDebug(const std::string& text) const {
  job_->logger().Log(LogLevel::kDebug, "process set " + std::to_string(id_) + ": " + text);
}

}  // namespace tf_smddp
