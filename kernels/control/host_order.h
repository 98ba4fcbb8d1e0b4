// HostOrder: the order in which the hosts of a job launch the requests of one communicator.
//
// Place in the stack: above relay_message.h. The relay of one host, the *head*, has it; every relay reports
// to the head, and all hosts obey what it returns. It compares the hosts' manifests, as the readiness table
// does for the ranks of one host. It is plain data: no threads, no memory shared between processes.
//
// The head hears of each tensor from each host. So what a report costs does not grow with the hosts: equal
// descriptions are one object (descriptions.h), and a request counts the hosts that it waits for.
#ifndef TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_
#define TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
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

  // Takes what host number `host` reports. Appends to *out what all hosts must get, in this order. All
  // descriptions come from one Descriptions.
  void Take(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);

 private:
  // A host has brought this to a request besides its arrival.
  struct Brought {
    std::size_t host;
    std::vector<RelayPart> parts;
    std::vector<std::string> data;
  };
  struct Entry {
    RelayMessage launch;      // but for its parts and data
    RankId first;             // a rank of the first host that was ready
    std::vector<bool> ready;  // by host
    std::size_t missing = 0;  // hosts with active members that are not ready
    std::size_t ranks = 0;    // that take part
    std::vector<Brought> brought;
  };

  void TakeReady(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);
  void TakeLeft(std::size_t host, const RelayMessage& message, std::vector<RelayMessage>* out);
  RankId FirstOf(std::size_t host, const RelayMessage& report) const;
  Entry NewEntry(std::size_t host, const RelayMessage& report) const;
  void AddReport(std::size_t host, const RelayMessage& report, Entry* entry) const;
  const Entry* FindInSamePlace(const std::vector<Entry>& entries, const RelayMessage& message) const;
  std::vector<RelayPart> PartsOf(const Entry& entry) const;
  void Launch(Entry entry, std::vector<RelayMessage>* out);
  void Fail(std::uint64_t origin, const std::string& text, std::vector<RelayMessage>* out);
  void Return(RankId last, std::vector<RelayMessage>* out);

  const std::vector<std::vector<int>> members_;  // by host
  const std::size_t num_members_;
  std::vector<std::size_t> active_;  // the number of members that have not left, by host
  std::size_t active_hosts_;         // those with such members
  std::uint64_t incarnation_ = 0;
  std::vector<std::vector<Entry>> waiting_;  // by the number of the key; few at a time
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_HOST_ORDER_H_
