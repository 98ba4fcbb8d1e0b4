// HostOrder: the order in which the hosts of a job launch the requests of one communicator.
//
// Place in the stack: above relay_message.h. The relay of one host, the *head*, has it; every relay reports
// to the head, and all hosts obey what it returns. It compares the hosts' manifests, as the readiness table
// does for the ranks of one host. It is plain data: no threads, no memory shared between processes.
#ifndef TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_
#define TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
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
  void Take(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);

 private:
  using Key = std::tuple<std::uint64_t, std::string, std::uint64_t>;  // hash, text, ticket
  struct Entry {
    std::vector<bool> ready;                     // by host
    RelayMessage launch;                         // with the parts of the hosts that are ready
    std::vector<std::vector<std::string>> data;  // by host
  };

  void TakeReady(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);
  void TakeLeft(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);
  bool AllReady(const Entry& entry) const;
  const Entry* FindInSamePlace(const Key& key) const;
  void Launch(Entry entry, std::vector<RelayMessage>* out);
  void Fail(std::uint64_t origin, const std::string& text, std::vector<RelayMessage>* out);
  void Return(RankId last, std::vector<RelayMessage>* out);

  const std::vector<int> members_;  // their number, by host
  const std::size_t num_members_;
  std::vector<int> active_;  // members that have not left, by host
  std::uint64_t incarnation_ = 0;
  std::map<Key, Entry> waiting_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_
