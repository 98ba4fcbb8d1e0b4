// HostOrder: the order in which the hosts of a job launch the requests of one communicator.
//
// Place in the stack: above relay_message.h. The relay of one host, the *head*, has it; every relay reports
// to the head, and all hosts obey what it returns. It compares the hosts' manifests, as the readiness table
// does for the ranks of one host. It is plain data: no threads, no memory shared between processes.
//
// Note [Promises]: to launch a request when all hosts have reported it takes the message of the last host to
// the head, and one back. So that the last host need not wait for an answer, the head may tell it before: a
// *promise* of a request that all other hosts have reported, this one included. The host launches it as soon
// as it reports it, and the head when it has that report. Between two hosts, this is one message each way, at
// the same time. What is promised becomes a batch by itself: one of several requests could not go before the
// host has reported all of it, which might wait for the first of it. So only a request that is one anyway is
// promised, and one while no other is under way. What keeps all hosts in step:
//   - One host has promises at a time. It launches them in their order, and the head launches nothing else
//     before they are launched.
//   - The head first withdraws its promises before it handles a failure, a leaving rank, or a request that
//     overtook a promised one. The host answers, behind its reports of what it has launched. So the head
//     knows then which promises were kept.
//   - A promise is kept only if all ranks take part in the request. So what depends on that is decided by the
//     head alone.
#ifndef TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_
#define TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/control/relay_message.h"

namespace tf_smddp {

// The text of the error when ranks run different collectives under one key (of Sequencer::KeyOf in
// kernels/engine) and ticket.
std::string DescribeDisagreement(const std::string& key, std::uint64_t ticket, int rank,
                                 const Manifest& manifest, int other_rank, const Manifest& other);

class HostOrder {
 public:
  // `members`: the ranks of the communicator, by host; hosts without any are left out.
  // The head's host is the first one.
  explicit HostOrder(const std::vector<std::vector<int>>& members);

  // Takes what host number `host` reports. Appends to *out what all hosts must get, in this order.
  // The launch of a request that was promised has `promised`, and is not for the host that promised_to().
  void Take(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);

  // Appends to *out promises to one host, promised_to(), of what only that host has not reported, if there
  // can be any now. No batch may be open.
  void Promise(std::vector<RelayMessage>* out);

  // Whether something is promised that has not been launched.
  bool has_promised() const { return !promised_.empty(); }
  std::size_t promised_to() const { return promised_to_; }

 private:
  using Key = std::tuple<std::uint64_t, std::string, std::uint64_t>;  // hash, text, ticket
  struct Entry {
    std::vector<bool> ready;                     // by host
    RelayMessage launch;                         // with the parts of the hosts that are ready
    std::vector<std::vector<std::string>> data;  // by host
    bool promised = false;
  };
  struct Failure {
    std::uint64_t origin;
    std::string text;
  };

  void TakeReady(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);
  void TakeLeft(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);
  bool AllReady(const Entry& entry) const;
  bool HasAllRanks(const Entry& entry) const;
  std::optional<std::size_t> LastAwaited(const Entry& entry) const;
  void AddToMayBePromised(const Key& key);
  void LaunchInOrder(std::vector<RelayMessage>* out);
  void Withdraw(std::vector<RelayMessage>* out);
  void TakeWithdrawn(std::vector<RelayMessage>* out);
  const Entry* FindInSamePlace(const Key& key) const;
  void Launch(Entry entry, std::vector<RelayMessage>* out);
  void Fail(std::uint64_t origin, const std::string& text, std::vector<RelayMessage>* out);
  void Return(RankId last, std::vector<RelayMessage>* out);

  const std::vector<int> members_;  // their number, by host
  const std::size_t num_members_;
  std::vector<int> active_;  // members that have not left, by host
  std::uint64_t incarnation_ = 0;
  std::map<Key, Entry> waiting_;
  // Of requests that one host alone had not reported when they were put here. Some are launched by now.
  std::deque<Key> may_be_promised_;

  // Of promises.
  std::size_t promised_to_ = 0;
  std::deque<Key> promised_;        // not launched yet
  std::deque<Key> behind_;          // all hosts have reported them, but there are promises before them
  bool withdrawing_ = false;        // the answer is to come
  std::optional<Failure> failure_;  // to come after the answer
  std::vector<std::pair<std::size_t, RelayMessage>> left_;  // kLeft, to be taken after the answer
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_
