// RelayHead: the relay of the head, as far as it decides for all hosts.
//
// Place in the stack: above host_order.h, which decides the order; below relay.h, which has one of these if
// its host is the head's.
//
// The head also cuts the batches, since transfers between hosts need the same ones on all of them. It holds
// back what it could launch while its own rank has sealed work, until the bucket cap is reached. All that
// goes to another host at a time is one message of the wire.
#ifndef TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_HEAD_H_
#define TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_HEAD_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/common/rank_id.h"
#include "kernels/control/host_order.h"
#include "kernels/control/relay_message.h"
#include "kernels/engine/core/member_state.h"

namespace tf_smddp {

// All methods: progress thread.
class RelayHead {
 public:
  // Its own relay obeys decisions, and says how many bytes this rank's part of a request has: 0 if there is
  // none.
  struct Relay {
    std::function<void(const RelayMessage&)> obey;
    std::function<std::uint64_t(const RelayMessage&)> own_bytes;
  };

  // Both outlive it.
  RelayHead(MemberState* state, Descriptions* descriptions, Relay relay);

  // Takes what a rank's relay reports, and decides. A rank of no host of the communicator is ignored.
  void Take(const RelayMessage& message, RankId from);

  // Sends a decision to the relays of all hosts.
  void Publish(const RelayMessage& decision) { Publish(std::vector<RelayMessage>{decision}); }

  // Launches what is held back; its rank is out of sealed work, or has left. True when there was something.
  bool SealOpen();
  std::size_t num_held() const { return held_.size(); }

 private:
  void Decide(RelayMessage decision);
  void Publish(std::vector<RelayMessage> decisions);
  std::vector<RelayMessage> ForHost(std::size_t host, std::vector<RelayMessage> decisions) const;

  MemberState* const state_;
  Descriptions* const descriptions_;
  Communicator* const communicator_;
  const Wire::Channel channel_;
  const Relay relay_;
  HostOrder order_;
  SentNumbers numbers_;       // all hosts get the same ones
  std::vector<int> host_of_;  // by rank of the job; -1: none
  // By host: where its ranks stand among those of the communicator.
  std::vector<std::vector<std::size_t>> places_;
  std::vector<RelayMessage> held_;  // launches of the open batch
  std::uint64_t held_bytes_ = 0;    // of the open batch
  bool open_ = false;               // launches of the open batch have been published
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_HOSTS_RELAY_HEAD_H_
