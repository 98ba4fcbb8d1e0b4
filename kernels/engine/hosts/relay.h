// Relay: speaks for the members on this host to the other hosts of a communicator.
//
// Place in the stack: above submission.h, below progress.h, which calls Step in the progress thread of the
// group's first member. Only communicators with ranks on several hosts have relays, one on each host. One of
// them, the head, decides the order (kernels/control/host_order.h).
//
// The life of a request: the members of a host arrive in its readiness table. The relay reports to the head
// when all have. When all hosts have reported, the head sends *launch* to all relays. A relay then arrives in
// the table for all other hosts, at the place outside(), with what their ranks bring, and appends the request
// to the launch log. So all logs have the same order.
//
// relay_head.h says what the head decides, and how it cuts batches.
//
// Between many hosts, a relay makes a pause between two reports, and what becomes ready meanwhile goes into
// one message: the head's time is mostly that of the messages of all hosts (docs/cluster-model.md).
//
// Whether tensors stay on devices is decided on the way: a report says whether the tensors of all members of
// its host have stayed there, and the launch whether all hosts have said so. Relays then say it at outside().
//
// The relays of the world also draw turns (kernels/collectives/turn_record.h), in one order on all hosts.
//
// A failed step: the rank that finds it sends *failed* to the head, and the head sends *fail* to all relays.
// A relay fails its host's incarnation when every request that was launched before has completed there. So a
// request that was launched completes on all hosts, and one that was not fails on all of them. (After an
// abort of the job, a request may have completed on some hosts only.)
#ifndef TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_H_
#define TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/rank_set.h"
#include "kernels/control/relay_message.h"
#include "kernels/engine/core/member_state.h"
#include "kernels/engine/core/submission.h"
#include "kernels/engine/hosts/relay_head.h"

namespace tf_smddp {

class Relay {
 public:
  // Both outlive it.
  Relay(MemberState* state, Submission* submission);

  // Does what can be done now, and never waits. True when there was something. Progress thread.
  bool Step();

  // Launches what the head has held back; its rank is out of sealed work, or has left. True when there was
  // something. Progress thread.
  bool SealOpen();

  // The launches that the head on this host holds back. Progress thread.
  std::size_t num_held() const { return head_ == nullptr ? 0 : head_->num_held(); }

  // Whether the head's answer may come soon, or there is soon room for a turn, or it is soon time to report.
  // Progress thread.
  bool polls() const {
    return (!reported_.empty() && Clock::now() < answer_expected_until_) || !turns_.empty() || holds_back_;
  }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // the key's number, ticket
  // A request that was launched, until its generation is retired.
  struct Launched {
    Place place;
    std::uint64_t ticket;
    void* parts;  // in the arena: what the other hosts' ranks bring; nullptr if nobody need know
  };

  bool ReportReady();
  void Report(const ReadinessTable::HostReady& ready);
  static Key KeyOf(const RelayMessage& message) { return {message.description->key_number, message.ticket}; }
  SharedDescription Describe(std::uint32_t slot, const Manifest& manifest);
  RelayPart PartOf(const ReadinessTable::HostReady& ready, MemberId member, const Manifest& manifest);
  bool ReportMembers();
  bool Receive();
  void Take(const RelayMessage& message, RankId from);
  std::uint64_t OwnBytes(const RelayMessage& launch);
  void Obey(const RelayMessage& message);
  void Launch(const RelayMessage& message);
  bool DrawTurns();
  void Retire();
  bool FailWhenDrained();
  void NoteShutDown(RankId rank);
  void CheckConnections();
  void SendToHead();

  MemberState* const state_;
  Submission* const submission_;
  Communicator* const communicator_;
  LocalGroup* const group_;
  const Wire::Channel channel_;
  Descriptions descriptions_;
  SentNumbers numbers_;                          // in reports
  std::unordered_map<int, KnownNumbers> known_;  // by the rank that sends them
  std::unique_ptr<RelayHead> head_;              // if this is the head's host
  std::vector<RelayMessage> reports_;            // to be sent to the head

  std::uint64_t incarnation_ = 0;
  std::uint64_t position_ = 0;     // in the ready log
  const Clock::duration pause_;    // at least so long between two reports
  Clock::time_point next_report_;  // not before
  bool holds_back_ = false;        // there is something to report then
  std::map<Key, Place> reported_;  // not launched yet
  Clock::time_point answer_expected_until_;
  std::deque<Launched> launched_;
  std::deque<RelayMessage> turns_;  // to be drawn, in this order
  // Failures that the head has decided, of this incarnation and of later ones, since other hosts may be
  // ahead; and shutdowns that came after them.
  std::deque<RelayMessage> failing_;
  bool returning_ = false;  // all members return with the next incarnation
  MemberMask active_;       // members that the head knows as active
  MemberMask shut_down_;    // members that the head knows to have shut down
  // Ranks of all hosts of which the head has said so.
  RankSet known_left_, known_shut_down_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_H_
